package main

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// docs/bounds.md names flags and files that exist.
func TestBoundsAreWhereTheySay(t *testing.T) {
	text, err := os.ReadFile("../../docs/bounds.md")
	require.NoError(t, err)
	flags := map[string]bool{}
	for f := range reflect.TypeFor[serveCmd]().Fields() {
		name := f.Tag.Get("name")
		if name == "" {
			name = kebab(f.Name)
		}
		flags["--"+name] = true
	}
	named := regexp.MustCompile("`(--[a-z-]+)`").FindAllStringSubmatch(string(text), -1)
	require.NotEmpty(t, named)
	for _, m := range named {
		require.True(t, flags[m[1]], "there is no flag %s", m[1])
	}
	for _, row := range strings.Split(string(text), "\n") {
		cells := strings.Split(row, "|")
		if len(cells) < 6 {
			continue
		}
		folder := ""
		for _, m := range regexp.MustCompile("`([a-z/]+\\.go)`").FindAllStringSubmatch(cells[len(cells)-2], -1) {
			path := m[1]
			if i := strings.LastIndexByte(path, '/'); i >= 0 {
				folder = path[:i+1]
			} else {
				path = folder + path
			}
			require.FileExists(t, "../../"+path)
		}
	}
}
