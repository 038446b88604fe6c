package main

import (
	"os"
	"testing"

	"github.com/oxygenhub/leader/internal/pgtest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func TestPairPostgres(t *testing.T) { require.NoError(t, pair(t.Context(), pgtest.URL(t))) }
