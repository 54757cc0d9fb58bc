package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A run that was saved is played again without its seed, to the same hash, with the same finding.
func TestSaveAndReplay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.json")
	v := object(t, exitHeld, "-seed", "7", "-save", file)
	r := object(t, exitHeld, "-replay", file)
	require.Equal(t, v["hash"], r["hash"])
	require.Equal(t, true, r["same"])
	require.Equal(t, "novasim -seed 7", r["from"])
	_, out, _ := novasim("-replay", file)
	require.Contains(t, out, "it is the run that was saved, to the last event")

	v = object(t, exitBroken, "-scenario", canary, "-save", file)
	r = object(t, exitBroken, "-replay", file)
	require.Equal(t, v["hash"], r["hash"])
	require.Equal(t, v["text"], r["text"])
	require.Equal(t, "novasim -replay "+file, r["replay"])

	// A program that differs says so, and plays on.
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	changed := strings.Replace(string(text), "create s", "create s t", 1)
	require.NotEqual(t, string(text), changed)
	require.NoError(t, os.WriteFile(file, []byte(changed), 0o600))
	_, out, _ = novasim("-replay", file)
	require.NotContains(t, out, "to the last event")
	require.Contains(t, out, "this program has ")
}

// A failure is one command away from its page, which is named after the scenario.
func TestPage(t *testing.T) {
	status, out, _ := novasim("-scenario", canary)
	require.Equal(t, exitBroken, status)
	require.Contains(t, out, "next:   novasim -scenario "+canary+" -seed 0 -html expects-too-much.html\n")
	_, out, _ = novasim("-scenario", canary, "-scenario", canary)
	require.Contains(t, out, " -html expects-too-much.html\n")
	page := filepath.Join(t.TempDir(), "page.html")
	status, out, _ = novasim("-scenario", canary, "-html", page)
	require.Equal(t, exitBroken, status)
	require.NotContains(t, out, "next:", "it is there")
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Contains(t, string(text), "<!doctype html>")
}

func TestMinimizeOfWhatHolds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "min.json")
	status, out, errOut := novasim("-seed", "7", "-minimize", "-save", file)
	require.Equal(t, exitHeld, status)
	require.Empty(t, out)
	require.Contains(t, errOut, "the run holds")
	require.NoFileExists(t, file)
	require.Equal(t, "held", object(t, exitHeld, "-seed", "7", "-minimize")["verdict"])

	run := filepath.Join(t.TempDir(), "run.json")
	object(t, exitHeld, "-seed", "7", "-save", run)
	require.Equal(t, "held", object(t, exitHeld, "-replay", run, "-minimize")["verdict"])
}

func TestReadingUsage(t *testing.T) {
	dir := t.TempDir()
	none := filepath.Join(dir, "none.json")
	junk := filepath.Join(dir, "junk.json")
	require.NoError(t, os.WriteFile(junk, []byte("{}"), 0o600))
	scenario := filepath.Join(dir, "scenario.json")
	status, _, _ := novasim("-scenario", canary, "-save", scenario)
	require.Equal(t, exitBroken, status)
	for args, want := range map[string]string{
		"-seeds 2 -save f":                          "-save is of one run",
		"-seeds 2 -html f":                          "-html is of one run",
		"-seed 1 -html -":                           "-html needs a file",
		"-seed 1 -save " + dir + "/no/f":            "no such file",
		"-seed 1 -html " + dir + "/no/f":            "no such file",
		"-replay " + none:                           "no such file",
		"-replay " + junk:                           "it is of version 0",
		"-replay " + junk + " -seed 1":              "needs no seed",
		"-replay " + junk + " -seeds 3":             "needs no seed",
		"-minimize":                                 "-minimize needs -seed or -replay",
		"-minimize -seeds 3":                        "-minimize is of the run of a seed",
		"-minimize -scenario " + canary:             "-minimize is of the run of a seed",
		"-minimize -replay " + none:                 "no such file",
		"-minimize -replay " + scenario:             "only the run of a seed is minimized",
		"-minimize -seed 7 -within -1s":             "-within must be above 0",
		"-seed 7 -within 3s":                        "-within is of -minimize",
		"-scenario " + canary + " -cut all -save f": "-save is of one run",
	} {
		status, out, errOut := novasim(strings.Fields(args)...)
		require.Equal(t, exitUsage, status, args)
		require.Empty(t, out, args)
		require.Contains(t, errOut, want, args)
	}
}
