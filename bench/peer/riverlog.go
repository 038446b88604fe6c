// SPDX-License-Identifier: MIT

//go:build unix

package peer

import (
	"context"
	"log/slog"
	"strings"
	"sync"
)

// electorLog is a log that listens to River's elector alone. Its lines are written where it changes its state.
type electorLog struct {
	mu      sync.Mutex
	ctx     context.Context //nolint:containedctx // of the contending that goes on
	tape    *tape           // nil when it does not
	leading bool
}

func (l *electorLog) begin(ctx context.Context, t *tape) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ctx, l.tape, l.leading = ctx, t, false
}

// end says that the work has ended, if there was any. What the elector logs from here on is its way out.
func (l *electorLog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leading {
		l.tape.ended(l.ctx)
	}
	l.tape = nil
}

// Enabled is true: the lines are of the level of debugging.
func (l *electorLog) Enabled(context.Context, slog.Level) bool { return true }

// Handle says what a line means. An elector that attempts to gain the leadership has published that it has none.
func (l *electorLog) Handle(_ context.Context, r slog.Record) error {
	line, ok := strings.CutPrefix(r.Message, "leadership.Elector: ")
	if !ok {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.tape == nil:
	case line == "Gained leadership":
		l.leading = true
		l.tape.say(Leading)
	case line == "Attempting to gain leadership" && l.leading:
		l.leading = false
		l.tape.ended(l.ctx)
	case strings.HasPrefix(line, "Leadership bid was unsuccessful"):
		l.tape.say(Waiting)
	}
	return nil
}

// WithAttrs returns the same log.
func (l *electorLog) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup returns the same log.
func (l *electorLog) WithGroup(string) slog.Handler { return l }
