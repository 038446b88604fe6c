// SPDX-License-Identifier: MIT

// Package integration tests leader against PostgreSQL servers in containers, which it freezes, kills, stops and takes
// off the network.
package integration

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

const (
	defaultImage = "postgres:18-alpine"
	ryukOff      = "TESTCONTAINERS_RYUK_DISABLED"
	hostOverride = "TESTCONTAINERS_HOST_OVERRIDE"
	loopback     = "127.0.0.1"
)

// TestMain sets what testcontainers reads from the environment, before it does, and removes old containers of ours.
func TestMain(m *testing.M) {
	setHost()
	setRyuk()
	sweep()
	os.Exit(m.Run())
}

// setHost says that a local engine publishes ports on this machine. testcontainers would guess that it runs in a
// container beside the others wherever it finds /.dockerenv, and look for them at the default gateway.
func setHost() {
	engine := os.Getenv("DOCKER_HOST")
	if os.Getenv(hostOverride) == "" && (engine == "" || strings.HasPrefix(engine, "unix://")) {
		os.Setenv(hostOverride, loopback)
	}
}

// setRyuk does without Ryuk, the container that removes what a killed test run leaves behind, where its image cannot
// be had: the tests remove their containers themselves.
func setRyuk() {
	if _, set := os.LookupEnv(ryukOff); set {
		return
	}
	docker, err := client.New(client.FromEnv)
	if err != nil {
		return
	}
	defer docker.Close()
	//nolint:staticcheck // deprecated since nobody should need to know; what replaces it is internal
	if !available(docker, testcontainers.ReaperDefaultImage) {
		os.Setenv(ryukOff, "true")
	}
}

// sweep removes what test runs that crashed have left behind, but not what runs beside this one.
func sweep() {
	docker, err := connect()
	if err != nil {
		return // onEachImage says so
	}
	defer docker.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	found, err := docker.ContainerList(ctx, client.ContainerListOptions{
		All: true, Filters: client.Filters{}.Add("label", label),
	})
	if err != nil {
		return
	}
	for _, c := range found.Items {
		if time.Since(time.Unix(c.Created, 0)) > time.Hour {
			_, _ = docker.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		}
	}
}

// onEachImage runs test once per image, each time on a server of its own.
func onEachImage(t *testing.T, test func(s *server)) {
	t.Helper()
	list, err := images()
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("CI is set, and %v", err)
		}
		t.Skipf("SKIPPED, NOTHING WAS TESTED: %v", err)
	}
	for _, image := range list {
		t.Run(image, func(t *testing.T) { test(startServer(t, image)) })
	}
}

// images returns the images to test on: those that the environment names, or else the default one, or else the newest
// one that image.sh has built here. Without Docker, or without any image, it returns why.
var images = sync.OnceValues(func() ([]string, error) {
	docker, err := connect()
	if err != nil {
		return nil, fmt.Errorf("the Docker engine does not answer: %w", err)
	}
	defer docker.Close()
	named := os.Getenv("LEADER_TEST_POSTGRES_IMAGES")
	if named == "" {
		named = os.Getenv("LEADER_TEST_POSTGRES_IMAGE")
	}
	if list := strings.FieldsFunc(named, func(r rune) bool { return r == ',' || r == ' ' }); len(list) > 0 {
		return list, nil
	}
	if available(docker, defaultImage) {
		return []string{defaultImage}, nil
	}
	for major := 18; major >= 13; major-- {
		if image := fmt.Sprintf("leader-postgres:%d", major); local(docker, image) {
			return []string{image}, nil
		}
	}
	return nil, fmt.Errorf("%s cannot be pulled and ./image.sh has built no image", defaultImage)
})

// connect returns a client of the engine that testcontainers uses. Looking for one panics if there is none.
func connect() (docker *client.Client, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	found, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return nil, err
	}
	return found.Client, nil
}

func local(docker *client.Client, image string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := docker.ImageInspect(ctx, image)
	return err == nil
}

// available reports whether image is here, or could be pulled.
func available(docker *client.Client, image string) bool {
	if local(docker, image) {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	pull, err := docker.ImagePull(ctx, image, client.ImagePullOptions{})
	if err != nil {
		return false
	}
	defer pull.Close()
	return pull.Wait(ctx) == nil
}

// plain reads a container's log, which comes in frames of an eight-byte header and text.
func plain(logs io.Reader) string {
	var text strings.Builder
	var header [8]byte
	for {
		if _, err := io.ReadFull(logs, header[:]); err != nil {
			return text.String()
		}
		if _, err := io.CopyN(&text, logs, int64(binary.BigEndian.Uint32(header[4:]))); err != nil {
			return text.String()
		}
	}
}
