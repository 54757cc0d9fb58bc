package main

import "github.com/nova-store/nova/api"

// streamCreateCmd creates a stream.
type streamCreateCmd struct {
	serverFlag
	outputFlag
	policyFlags
	Stream string `arg:"" help:"Name of the stream."`
}

// Help is shown by novad stream create --help.
func (streamCreateCmd) Help() string {
	return `A stream that exists is left as it is; if --max-age or --max-bytes ask for another policy than it has, that is an error.`
}

// Run creates the stream and describes it.
func (c *streamCreateCmd) Run(p *process) error {
	if err := checkStream(c.Stream); err != nil {
		return err
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.Close()
	var policy *api.Policy
	if c.given() {
		policy = &api.Policy{MaxAgeMS: c.MaxAge.d.Milliseconds(), MaxBytes: uint64(c.MaxBytes.n)}
	}
	s, _, err := client.CreateStream(p.ctx, c.Stream, policy)
	if err != nil {
		return err
	}
	return c.printStream(p.stdout, s)
}
