package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/nova-store/nova/api"
	"github.com/nova-store/nova/catalog"
)

// serverFlag is the flag of commands that talk to a running server.
type serverFlag struct {
	Server string `help:"URL of the server." default:"http://${listen}" env:"NOVA_SERVER" placeholder:"URL"`
}

func (f *serverFlag) client() (*api.Client, error) {
	c, err := api.NewClient(f.Server)
	if err != nil {
		return nil, &usageError{err}
	}
	return c, nil
}

// checkStream refuses an illegal name as wrong usage.
func checkStream(name string) error {
	if err := catalog.CheckStreamName(name); err != nil {
		return &usageError{err}
	}
	return nil
}

// isProblem tells whether the server answered with a problem of that type.
func isProblem(err error, typ string) bool {
	var p *api.Problem
	return errors.As(err, &p) && p.Type == typ
}

// printJSON prints v on one line.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return outputError(e.Encode(v))
}

// printLine prints v as text.
func printLine(w io.Writer, v any) error {
	_, err := fmt.Fprintln(w, v)
	return outputError(err)
}

func outputError(err error) error {
	if err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}
