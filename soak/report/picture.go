// SPDX-License-Identifier: MIT

package report

import (
	"bytes"
	_ "embed" // for the style
	"encoding/xml"
	"fmt"
	"html/template"
	"strings"
)

//go:embed picture.css
var pictureStyle string

// picture is an SVG: for the page, whose style it takes, or as a file of its own.
type picture struct {
	File, Title   string
	Width, Height float64
	body          bytes.Buffer
}

// Inline returns it for the page.
func (p *picture) Inline() template.HTML {
	return template.HTML(p.open("") + p.body.String() + "</svg>") //nolint:gosec // each text in it was escaped when it was drawn
}

// file returns it with its own style and ground.
func (p *picture) file() []byte {
	return []byte(p.open(` xmlns="http://www.w3.org/2000/svg"`) + "<style>" + pictureStyle + "</style>" +
		fmt.Sprintf(`<rect class="ground" width="%g" height="%g"/>`, p.Width, p.Height) + p.body.String() + "</svg>\n")
}

func (p *picture) open(more string) string {
	return fmt.Sprintf(`<svg%s class="picture" role="img" aria-label="%s" viewBox="0 0 %g %g" width="%g" height="%g">`,
		more, escape(p.Title), p.Width, p.Height, p.Width, p.Height)
}

// escape makes text that may stand in XML, in an attribute too.
func escape(s string) string {
	var out strings.Builder
	_ = xml.EscapeText(&out, []byte(plain(s))) // a Builder takes all
	return out.String()
}

func (p *picture) rect(class string, x, y, w, h float64, title string) {
	fmt.Fprintf(&p.body, `<rect class="%s" x="%.2f" y="%.2f" width="%.2f" height="%.2f"`, class, x, y, max(w, 0.6), h)
	p.close("rect", title)
}

func (p *picture) line(class string, x1, y1, x2, y2 float64, title string) {
	fmt.Fprintf(&p.body, `<line class="%s" x1="%.2f" y1="%.2f" x2="%.2f" y2="%.2f"`, class, x1, y1, x2, y2)
	p.close("line", title)
}

func (p *picture) path(class, d, title string) {
	fmt.Fprintf(&p.body, `<path class="%s" d="%s"`, class, d)
	p.close("path", title)
}

func (p *picture) close(tag, title string) {
	if title == "" {
		p.body.WriteString("/>")
		return
	}
	fmt.Fprintf(&p.body, `><title>%s</title></%s>`, escape(title), tag)
}

// text writes at x, by its anchor: start, middle or end.
func (p *picture) text(class, anchor string, x, y float64, s string) {
	fmt.Fprintf(&p.body, `<text class="%s" text-anchor="%s" x="%.2f" y="%.2f">%s</text>`, class, anchor, x, y, escape(s))
}

// fit cuts a text to a width, by the width of the average letter.
func fit(s string, width, letter float64) string {
	runes := []rune(plain(s))
	if most := int(width / letter); len(runes) > most {
		if most < 2 {
			return ""
		}
		return string(runes[:most-1]) + "…"
	}
	return string(runes)
}
