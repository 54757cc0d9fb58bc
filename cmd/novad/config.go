package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
	kongyaml "github.com/alecthomas/kong-yaml"
	"gopkg.in/yaml.v3"
)

// configFile gives the flags of serve their values from the file that --config or
// NOVA_CONFIG names. Its keys are the flags' names.
type configFile struct{ values kong.Resolver }

// Validate has nothing to check before the file's name is known.
func (f *configFile) Validate(*kong.Application) error { return nil }

// Resolve returns the file's value of a flag, or nil.
func (f *configFile) Resolve(ctx *kong.Context, parent *kong.Path, flag *kong.Flag) (any, error) {
	node := parent.Node()
	if node == nil || node.Name != "serve" && node.Name != "config" || flag.Name == "config" {
		return nil, nil
	}
	if f.values == nil {
		i := slices.IndexFunc(node.Flags, func(g *kong.Flag) bool { return g.Name == "config" })
		path, _ := ctx.FlagValue(node.Flags[i]).(string)
		if path == "" {
			return nil, nil
		}
		values, err := loadConfig(path, node)
		if err != nil {
			return nil, &configError{err}
		}
		f.values = values
	}
	for _, env := range flag.Envs {
		if _, set := os.LookupEnv(env); set {
			return nil, nil // kong itself would let the file win
		}
	}
	return f.values.Resolve(ctx, parent, flag)
}

// configError: the file is at fault, and not the flag that kong asked it for and names.
type configError struct{ err error }

func (e *configError) Error() string { return e.err.Error() }

func (e *configError) Unwrap() error { return e.err }

func loadConfig(path string, node *kong.Node) (kong.Resolver, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	doc := map[string]yaml.Node{}
	d := yaml.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: more behind the first document", path)
	}
	// As text, which a flag takes: 5 as a duration must lack its unit here as it does there.
	values := make(map[string]string, len(doc))
	var unknown []string
	for _, key := range slices.Sorted(maps.Keys(doc)) {
		if node := doc[key]; node.Kind != yaml.ScalarNode || node.Tag == "!!null" {
			return nil, fmt.Errorf("%s: line %d: %s must have one value", path, node.Line, key)
		}
		values[key] = doc[key].Value
		if key == "config" || key == "output" || !slices.ContainsFunc(node.Flags, func(g *kong.Flag) bool { return g.Name == key }) {
			unknown = append(unknown, strconv.Quote(key))
		}
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("%s: unknown keys %s; keys are the names of the flags of novad serve", path, strings.Join(unknown, ", "))
	}
	// The loader looks a command's flags up beneath the command's name.
	nested, err := yaml.Marshal(map[string]any{node.Name: values})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return kongyaml.Loader(bytes.NewReader(nested))
}

// byteSize is a number of bytes, written as 1048576, 1024KiB or 1MiB.
type byteSize int64

var byteUnits = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// Decode reads a flag's value, which a file may give as a number.
func (b *byteSize) Decode(ctx *kong.DecodeContext) error {
	token, err := ctx.Scan.PopValue("size")
	if err != nil {
		return err
	}
	return b.parse(fmt.Sprint(token.Value))
}

func (b *byteSize) parse(text string) error {
	s, unit := text, int64(1)
	for _, u := range byteUnits {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			s, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > (1<<62)/unit {
		return fmt.Errorf("%q is not a size like 1048576, 512KiB or 1MiB", text)
	}
	*b = byteSize(n * unit)
	return nil
}

// String is what a flag takes.
func (b byteSize) String() string {
	for _, u := range byteUnits {
		if int64(b) >= u.bytes && int64(b)%u.bytes == 0 {
			return strconv.FormatInt(int64(b)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}
