// SPDX-License-Identifier: MIT

package report

import (
	"bytes"
	"cmp"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/oxygenhub/leader/bench/result"
)

// width is that of a page on GitHub, 830 pixels of which 4 are 3 points.
const width vg.Length = 622

// colorOf is always the same for a peer: those of Okabe and Ito, which the colour-blind can tell apart.
func colorOf(peer string) color.Color {
	switch peer {
	case "leader":
		return color.RGBA{R: 0x00, G: 0x72, B: 0xB2, A: 0xFF}
	case "client-go":
		return color.RGBA{R: 0xE6, G: 0x9F, B: 0x00, A: 0xFF}
	case "etcd":
		return color.RGBA{R: 0x00, G: 0x9E, B: 0x73, A: 0xFF}
	case "River":
		return color.RGBA{R: 0xD5, G: 0x5E, B: 0x00, A: 0xFF}
	case "gocron":
		return color.RGBA{R: 0xCC, G: 0x79, B: 0xA7, A: 0xFF}
	case "blocked":
		return color.RGBA{R: 0x99, G: 0x99, B: 0x99, A: 0xFF}
	case "raw":
		return color.RGBA{R: 0x55, G: 0x55, B: 0x55, A: 0xFF}
	}
	return color.Black
}

// draws returns an SVG of the rows of a measure, or nothing where there is nothing to see: over X as lines, else as dots. Both
// have a logarithmic scale, on which there is no place for zero.
func draws(title string, rows []result.Row) ([]byte, error) {
	var shown []result.Row
	xs := make(map[float64]bool)
	for _, r := range rows {
		if len(r.Samples) > 0 && slices.Min(r.Samples) > 0 {
			shown = append(shown, r)
			xs[r.X] = true
		}
	}
	switch {
	case len(shown) < 2:
		return nil, nil
	case len(xs) > 1 && !xs[0]:
		return lines(title, shown)
	}
	return dots(title, shown)
}

// dots has a row for each contender, a dot for each sample and a bar for the median.
func dots(title string, rows []result.Row) ([]byte, error) {
	p := blank(title)
	least, most := math.Inf(1), 0.0
	labels := make(plot.ConstantTicks, 0, len(rows))
	for i, r := range rows {
		y := float64(len(rows) - 1 - i) // the first one on top
		labels = append(labels, plot.Tick{Value: y, Label: contender(r)})
		points := make(plotter.XYs, len(r.Samples))
		for k, s := range r.Samples {
			points[k] = plotter.XY{X: s, Y: y + 0.3*(math.Mod(float64(k)*math.Phi, 1)-0.5)} // beside each other, the same in each drawing
		}
		samples, err := plotter.NewScatter(points)
		if err != nil {
			return nil, err
		}
		samples.GlyphStyle = draw.GlyphStyle{Color: colorOf(r.Peer), Radius: 1.6, Shape: draw.CircleGlyph{}}
		median := result.Median(r.Samples)
		bar, err := plotter.NewLine(plotter.XYs{{X: median, Y: y - 0.35}, {X: median, Y: y + 0.35}})
		if err != nil {
			return nil, err
		}
		bar.LineStyle = draw.LineStyle{Color: color.Black, Width: 1.8}
		p.Add(samples, bar)
		least, most = min(least, slices.Min(r.Samples)), max(most, slices.Max(r.Samples))
	}
	unit := rows[0].Unit
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, powers(unit)
	p.X.Min, p.X.Max = least/1.3, most*1.3
	p.Y.Tick.Marker, p.Y.Min, p.Y.Max = labels, -0.6, float64(len(rows))-0.4
	p.Y.Tick.Length = 0
	return svg(p, 80+22*vg.Length(len(rows)))
}

// lines has the medians of each contender over X.
func lines(title string, rows []result.Row) ([]byte, error) {
	p := blank(title)
	var names []string
	series := make(map[string]plotter.XYs)
	peers := make(map[string]string)
	for _, r := range rows {
		name := contender(r)
		if series[name] == nil {
			names = append(names, name)
		}
		series[name] = append(series[name], plotter.XY{X: r.X, Y: result.Median(r.Samples)})
		peers[name] = r.Peer
	}
	shapes := []draw.GlyphDrawer{draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.CrossGlyph{}}
	for i, name := range names {
		points := series[name]
		slices.SortFunc(points, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
		line, glyphs, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		line.LineStyle = draw.LineStyle{Color: colorOf(peers[name]), Width: 1.5}
		if i > 0 {
			line.Dashes = []vg.Length{vg.Length(2 + 3*i), 3}
		}
		glyphs.GlyphStyle = draw.GlyphStyle{Color: colorOf(peers[name]), Radius: 3, Shape: shapes[i%len(shapes)]}
		p.Add(line, glyphs)
		p.Legend.Add(name, line, glyphs)
	}
	p.Legend.Top, p.Legend.Left = true, true
	p.X.Label.Text = rows[0].Work
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, powers("1")
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, powers(rows[0].Unit)
	p.Y.Min, p.Y.Max = p.Y.Min/2, p.Y.Max*(2+float64(len(names))) // room for the names
	return svg(p, 280)
}

// blank is a plot with nothing in it but a title.
func blank(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	for _, f := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font,
	} {
		f.Variant, f.Size = "Sans", 10
	}
	p.Title.TextStyle.Font.Size = 12
	p.Add(plotter.NewGrid())
	return p
}

// powers are ticks at the powers of ten, and where there are few, at twice and five times them, or at even distances.
func powers(unit string) plot.Ticker {
	return plot.TickerFunc(func(low, high float64) []plot.Tick {
		ticks := steps(low, high, 1)
		if len(ticks) < 3 {
			ticks = steps(low, high, 1, 2, 5)
		}
		if len(ticks) < 2 {
			ticks = plot.DefaultTicks{}.Ticks(low, high)
		}
		for i := range ticks {
			if !ticks[i].IsMinor() {
				ticks[i].Label = quantity(ticks[i].Value, unit)
			}
		}
		return ticks
	})
}

// steps are ticks at the powers of ten, each times some factors.
func steps(low, high float64, factors ...float64) (ticks []plot.Tick) {
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		for _, f := range factors {
			if v := f * math.Pow(10, e); v >= low && v <= high {
				ticks = append(ticks, plot.Tick{Value: v, Label: "-"})
			}
		}
	}
	return ticks
}

func svg(p *plot.Plot, height vg.Length) ([]byte, error) {
	canvas := vgsvg.New(width, height)
	p.Draw(draw.New(canvas))
	var out bytes.Buffer
	_, err := canvas.WriteTo(&out)
	return out.Bytes(), err
}
