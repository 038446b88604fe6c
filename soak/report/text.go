// SPDX-License-Identifier: MIT

package report

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// longest is how much of a text is shown.
const longest = 600

// plain makes text visible: whatever has no shape, or changes that of its neighbours, is shown as its code. Names of tasks
// and errors of databases are anybody's.
func plain(s string) string {
	var out strings.Builder
	n := 0
	for i, r := range s {
		if n++; n > longest {
			out.WriteString(" …")
			break
		}
		switch {
		case r == utf8.RuneError:
			if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
				fmt.Fprintf(&out, `\x%02x`, s[i])
				continue
			}
			out.WriteRune(r)
		case r == '\n' || r == '\t':
			out.WriteByte(' ')
		case r == ' ' || unicode.IsGraphic(r) && !unicode.IsSpace(r):
			out.WriteRune(r)
		default:
			fmt.Fprintf(&out, `\u{%x}`, r)
		}
	}
	return out.String()
}

// span is a duration for people.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + span(-d)
	case d == 0:
		return "0"
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d)
	case d < time.Millisecond:
		return fmt.Sprintf("%.2g ms", d.Seconds()*1e3)
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1e3)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", d.Seconds()*1e3)
	case d < 10*time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	default:
		return d.Round(time.Second).String()
	}
}
