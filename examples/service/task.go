// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"log/slog"
	"time"
)

// repeat is a task: it works at intervals until it is told to stop. What it returns then is of no interest.
func repeat(ctx context.Context, logger *slog.Logger, name string, every time.Duration) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			logger.InfoContext(ctx, "work done", slog.String("name", name))
		case <-ctx.Done():
			logger.InfoContext(ctx, "task stops", slog.String("name", name), slog.Any("why", context.Cause(ctx)))
			return nil
		}
	}
}
