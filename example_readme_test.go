package leader_test

import (
	"context"
	"flag"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/oxygenhub/leader"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func deliverMail(context.Context) error { return nil }

// The example of the README. What lies between the two marks is copied from here by TestReadmeSnippet.
func Example_readme() {
	// README:
	opts := leader.Options{Namespace: "billing", Logger: slog.Default()}
	lead, err := leader.New(leader.Postgres(os.Getenv("DATABASE_URL")), opts)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	var wg sync.WaitGroup
	for name, work := range map[string]func(context.Context) error{
		"invoices": sendInvoices, "outbox": deliverMail,
	} {
		wg.Go(func() {
			// Waits for the lock, and runs the function while this process holds it.
			err := lead.Run(ctx, name, func(ctx context.Context) error {
				for ctx.Err() == nil { // until the lock is lost, or the program is to stop
					if err := work(ctx); err != nil {
						log.Printf("%s: %v", name, err) // and try again in a minute
					}
					select {
					case <-ctx.Done():
					case <-time.After(time.Minute):
					}
				}
				return nil
			})
			log.Printf("%s has ended: %v", name, err)
		})
	}
	wg.Wait() // all functions have returned, and their locks are free
	// README end
}

// update: go test -run TestReadmeSnippet -update .
var update = flag.Bool("update", false, "write the example of example_readme_test.go to README.md")

// TestReadmeSnippet checks that the first Go block of README.md is the code of Example_readme.
func TestReadmeSnippet(t *testing.T) {
	source := readText(t, "example_readme_test.go")
	_, rest, found := strings.Cut(source, "\t// README:\n")
	require.True(t, found)
	body, _, found := strings.Cut(rest, "\t// README end\n")
	require.True(t, found)
	want := strings.ReplaceAll("\n"+body, "\n\t", "\n")[1:]

	const open, end = "\n```go\n", "```\n"
	readme := readText(t, "README.md")
	before, rest, found := strings.Cut(readme, open)
	require.True(t, found, "README.md has no Go block")
	got, after, found := strings.Cut(rest, end)
	require.True(t, found, "the Go block of README.md does not end")
	if *update && got != want {
		require.NoError(t, os.WriteFile("README.md", []byte(before+open+want+end+after), 0o644))
		return
	}
	assert.Equal(t, want, got, "write the README anew: go test -run TestReadmeSnippet -update .")
}

// readText reads a file of the repository, which Git may have given the line ends of Windows.
func readText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}
