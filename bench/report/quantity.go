// SPDX-License-Identifier: MIT

package report

import (
	"math"
	"strconv"
	"strings"
)

// quantity writes a value for people, with three digits.
func quantity(value float64, unit string) string {
	switch {
	case math.IsNaN(value) || math.IsInf(value, 0):
		return "–"
	case unit == "s":
		return duration(value)
	case unit == "ns":
		return duration(value / 1e9)
	case unit == "s/s":
		return duration(value) + "/s"
	case unit == "x":
		return digits(value) + " x"
	case unit == "B":
		return size(value)
	case unit == "B/s":
		return size(value) + "/s"
	case strings.HasPrefix(unit, "1/"):
		return digits(value) + "/" + strings.TrimPrefix(unit, "1/")
	case unit == "1" || unit == "":
		return digits(value)
	}
	return digits(value) + " " + unit
}

func duration(s float64) string {
	switch size := math.Abs(s); {
	case s == 0:
		return "0 s"
	case size >= 1:
		return digits(s) + " s"
	case size >= 1e-3:
		return digits(s*1e3) + " ms"
	case size >= 1e-6:
		return digits(s*1e6) + " µs"
	}
	return digits(s*1e9) + " ns"
}

func size(b float64) string {
	switch size := math.Abs(b); {
	case size >= 1e6:
		return digits(b/1e6) + " MB"
	case size >= 1e3:
		return digits(b/1e3) + " kB"
	}
	return digits(b) + " B"
}

// digits keeps three of them, and all before the point.
func digits(v float64) string {
	if v == 0 {
		return "0"
	}
	places := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	text := strconv.FormatFloat(v, 'f', places, 64)
	if places > 0 {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return thousands(text)
}

// thousands sets commas in a whole number of five digits and more.
func thousands(text string) string {
	if len(text) < 5 || strings.ContainsAny(text, ".-") {
		return text
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
