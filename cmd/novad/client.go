package main

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/nova-store/nova/api"
	"github.com/nova-store/nova/catalog"
)

// serverFlag is the flags of commands that talk to a running server.
type serverFlag struct {
	Server     string `help:"URL of the server." default:"http://${listen}" env:"NOVA_SERVER" placeholder:"URL"`
	TokenFile  string `help:"File whose first token is sent to the server." env:"NOVA_TOKEN_FILE" placeholder:"FILE"`
	CAFile     string `name:"ca-file" help:"Authorities that may have signed the server's certificate, PEM; default: the system's." env:"NOVA_CA_FILE" placeholder:"FILE"`
	ClientCert string `help:"Certificate of this client, PEM." env:"NOVA_CLIENT_CERT" placeholder:"FILE"`
	ClientKey  string `help:"Its key, PEM." env:"NOVA_CLIENT_KEY" placeholder:"FILE"`
}

func (f *serverFlag) client() (*api.Client, error) {
	opts, err := f.options()
	if err != nil {
		return nil, &usageError{err}
	}
	c, err := api.NewClient(f.Server, opts)
	if err != nil {
		return nil, &usageError{err}
	}
	return c, nil
}

func (f *serverFlag) options() (opts api.ClientOptions, err error) {
	if f.TokenFile != "" {
		tokens, err := api.ReadTokens(f.TokenFile)
		if err != nil {
			return opts, fmt.Errorf("--token-file: %w", err)
		}
		opts.Token = tokens[0]
	}
	if (f.ClientCert == "") != (f.ClientKey == "") {
		return opts, errors.New("--client-cert and --client-key go together")
	}
	if f.CAFile == "" && f.ClientCert == "" {
		return opts, nil
	}
	opts.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CAFile != "" {
		if opts.TLS.RootCAs, err = readAuthorities(f.CAFile); err != nil {
			return opts, fmt.Errorf("--ca-file: %w", err)
		}
	}
	if f.ClientCert != "" {
		pair, err := tls.LoadX509KeyPair(f.ClientCert, f.ClientKey)
		if err != nil {
			return opts, fmt.Errorf("--client-cert and --client-key: %w", err)
		}
		opts.TLS.Certificates = []tls.Certificate{pair}
	}
	return opts, nil
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
