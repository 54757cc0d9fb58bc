package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/alecthomas/kong"
	"github.com/jedib0t/go-pretty/v6/table"
)

// configCmd shows the effective configuration of serve, whose flags it takes.
type configCmd struct {
	serveCmd
	Output string `help:"How to print: table or json." enum:"table,json" default:"table" env:"-"`
}

// Help is shown by novad config --help.
func (configCmd) Help() string {
	return `Takes the flags of serve, reads the same environment and file, and starts nothing. A configuration that serve would
refuse is printed too, and then refused, with status 2.`
}

// setting is a flag with its value.
type setting struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"` // flag, environment, file or default
	From   string `json:"from,omitempty"`
}

// Run prints every setting, and says whether serve would take them.
func (c *configCmd) Run(p *process, k *kong.Context) error {
	_, refused := c.config(slog.New(slog.DiscardHandler))
	settings := c.settings(k)
	if c.Output == "json" {
		if err := printJSON(p.stdout, settings); err != nil {
			return err
		}
	} else {
		rows := make([]table.Row, 0, len(settings))
		for _, s := range settings {
			rows = append(rows, table.Row{s.Key, s.Value, s.Source + " " + s.From})
		}
		if err := renderTable(p.stdout, 3, table.Row{"key", "value", "source"}, rows); err != nil {
			return err
		}
	}
	if refused != nil {
		return refused
	}
	if err := c.checkListen(c.Listen); err != nil {
		return err
	}
	_, err := c.open(slog.New(slog.DiscardHandler))
	return err
}

func (c *configCmd) settings(k *kong.Context) []setting {
	given, resolved := map[string]bool{}, map[string]bool{}
	for _, el := range k.Path {
		if el.Flag != nil {
			given[el.Flag.Name] = given[el.Flag.Name] || !el.Resolved
			resolved[el.Flag.Name] = resolved[el.Flag.Name] || el.Resolved
		}
	}
	var out []setting
	for _, f := range k.Selected().Flags {
		if f.Name == "output" {
			continue
		}
		s := setting{Key: f.Name, Value: fmt.Sprint(k.FlagValue(f)), Source: "default"}
		env := ""
		for _, name := range f.Envs {
			if _, ok := os.LookupEnv(name); ok {
				env = name
			}
		}
		switch {
		case given[f.Name]:
			s.Source, s.From = "flag", "--"+f.Name
		case env != "":
			s.Source, s.From = "environment", env
		case resolved[f.Name]:
			s.Source, s.From = "file", c.serveCmd.Config
		}
		out = append(out, s)
	}
	return out
}
