// SPDX-License-Identifier: MIT

package report

import (
	"bytes"
	_ "embed" // for the page
	"html/template"
)

//go:embed report.html
var pageText string

//go:embed report.css
var pageStyle string

// html makes the page.
func (v *view) html() ([]byte, error) {
	page, err := template.New("report").Funcs(template.FuncMap{
		"plain": plain,
		"span":  span,
		"style": func() template.CSS { return template.CSS(pageStyle + pictureStyle) }, //nolint:gosec // its own
	}).Parse(pageText)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = page.Execute(&out, v)
	return out.Bytes(), err
}
