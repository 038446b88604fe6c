#!/bin/sh
# SPDX-License-Identifier: MIT
#
# image.sh [MAJOR [NAME]]: build a PostgreSQL image for the tests where no registry can be reached. It prints the
# image's name, by default leader-postgres:MAJOR, and does nothing if that image is up to date. MAJOR is 15 by default.
#
# The server is the one installed in /usr/lib/postgresql/MAJOR, as Debian's packages put it there, or else the one in
# pg-MAJOR.tar.xz (bin/, lib/, share/) in the folder LEADER_TEST_POSTGRES_ARCHIVES, by default ../../shared/postgres
# beside this script. To it come the shared libraries, a shell and the few commands that entrypoint.sh needs, all from
# this machine: so the image is for this machine's architecture only.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
major=${1:-15}
image=${2:-leader-postgres:$major}
archives=${LEADER_TEST_POSTGRES_ARCHIVES:-$here/../../shared/postgres}
archive=$archives/pg-$major.tar.xz
package=/usr/lib/postgresql/$major
share=/usr/share/postgresql/$major
label=leader.inputs
commands='cat chmod chown id mkdir rm sed setpriv sh sleep'

die() {
	echo "image.sh: $*" >&2
	exit 1
}

# check_docker ends the script unless an engine answers.
check_docker() {
	command -v docker >/dev/null || die 'no docker command in PATH'
	docker version --format '{{.Server.Version}}' >/dev/null 2>"$tmp/err" ||
		die "the Docker engine does not answer: $(cat "$tmp/err")"
}

# choose sets source to where the server comes from.
choose() {
	if [ -x "$package/bin/postgres" ]; then
		source=package
	elif [ -f "$archive" ]; then
		source=archive
	else
		die "no PostgreSQL $major: neither $package/bin/postgres nor $archive"
	fi
}

# inputs prints one hash of what decides the image's content. Libraries of this machine are counted by libc only.
inputs() {
	{
		sha256sum <"$here/image.sh"
		sha256sum <"$here/entrypoint.sh"
		case $source in
		package) sha256sum <"$package/bin/postgres" && cat "$package"/lib/*.so | sha256sum ;;
		archive) sha256sum <"$archive" ;;
		esac
		libraries /bin/sh | while read -r file; do sha256sum <"$file"; done
	} | sha256sum | cut -d ' ' -f 1
}

# libraries prints the shared libraries, and the loader, that the given files need.
libraries() {
	ldd "$@" 2>/dev/null | sed -n 's|^[^/]*\(/[^ ]*\) (0x.*|\1|p' | sort -u
}

# add copies a file to the same path in the image, whole files instead of links.
add() {
	mkdir -p "$root$(dirname "$1")"
	cp -L "$1" "$root$1"
}

# add_server copies the server to the image and sets bin to its folder there.
add_server() {
	case $source in
	package)
		bin=$package/bin
		mkdir -p "$root$bin" "$root$package/lib" "$root$share"
		cp -L "$package/bin/postgres" "$package/bin/initdb" "$package/bin/pg_ctl" "$root$bin"
		# Not the JIT compiler: it alone needs 100 MB of LLVM.
		for file in "$package"/lib/*.so; do
			case $file in */llvmjit.so) ;; *) cp -L "$file" "$root$package/lib" ;; esac
		done
		cp -RL "$share"/. "$root$share"
		rm -rf "$root$share/man"
		;;
	archive)
		bin=/usr/local/pgsql/bin
		mkdir -p "$root/usr/local/pgsql"
		tar -xJf "$archive" -C "$root/usr/local/pgsql" || die "cannot unpack $archive"
		;;
	esac
	[ -x "$root$bin/postgres" ] || die "no bin/postgres in the $source of PostgreSQL $major"
}

# add_system copies what the server and the entry point need of this machine.
add_system() {
	mkdir -p "$root/etc" "$root/tmp" "$root/root" "$root/var/lib/postgresql" "$root/var/run/postgresql"
	chmod 1777 "$root/tmp"
	printf '%s\n' 'root:x:0:0:root:/root:/bin/sh' \
		'postgres:x:999:999:PostgreSQL:/var/lib/postgresql:/bin/sh' >"$root/etc/passwd"
	printf '%s\n' 'root:x:0:' 'postgres:x:999:' >"$root/etc/group"
	# Debian's server reads the system's time zones; the archives bring their own.
	if [ "$source" = package ]; then
		[ -d /usr/share/zoneinfo ] || die 'no /usr/share/zoneinfo: install tzdata'
		mkdir -p "$root/usr/share"
		cp -RL /usr/share/zoneinfo "$root/usr/share"
	fi
	mkdir -p "$root/bin"
	for name in $commands; do
		file=$(command -v "$name") || die "no command $name on this machine"
		cp -L "$file" "$root/bin/$name"
	done
	cp "$here/entrypoint.sh" "$root/entrypoint.sh"
	chmod 755 "$root/entrypoint.sh"
	find "$root" -type f \( -perm -100 -o -name '*.so' -o -name '*.so.*' \) >"$tmp/files"
	while read -r file; do
		LD_LIBRARY_PATH=$root/usr/local/pgsql/lib libraries "$file"
	done <"$tmp/files" | sort -u | grep -v "^$root/" >"$tmp/libraries" || true
	[ -s "$tmp/libraries" ] || die 'ldd names no library: is this a glibc system?'
	while read -r file; do add "$file"; done <"$tmp/libraries"
}

# build turns the root file system into the image.
build() {
	mkdir "$tmp/context"
	tar -C "$root" --owner=0 --group=0 -cf "$tmp/context/root.tar" .
	cat >"$tmp/context/Dockerfile" <<-EOF
		FROM scratch
		ADD root.tar /
		ENV PATH=$bin:/bin LD_LIBRARY_PATH=/usr/local/pgsql/lib PGDATA=/var/lib/postgresql/data
		ENTRYPOINT ["/entrypoint.sh"]
		CMD ["postgres"]
		EXPOSE 5432
		STOPSIGNAL SIGINT
		LABEL $label=$hash
	EOF
	docker build --tag "$image" "$tmp/context" >"$tmp/out" 2>&1 || die "docker build of $image: $(cat "$tmp/out")"
}

# try starts the image once without a server, so that a missing library is seen here and not in a test.
try() {
	docker run --rm "$image" sh -c 'setpriv --version && initdb --version && postgres --version' >"$tmp/out" 2>&1 ||
		die "$image does not start: $(cat "$tmp/out")"
}

case $major in
*[!0-9]* | '') die 'usage: image.sh [MAJOR [NAME]]' ;;
esac
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
check_docker
choose
hash=$(inputs)
if [ "$(docker image inspect --format "{{index .Config.Labels \"$label\"}}" "$image" 2>/dev/null)" != "$hash" ]; then
	root=$tmp/root
	mkdir "$root"
	add_server
	add_system
	build
	try
fi
echo "$image"
