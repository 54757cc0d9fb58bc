package main

// streamSetCmd changes a stream's policy.
type streamSetCmd struct {
	serverFlag
	outputFlag
	policyFlags
	Stream string `arg:"" help:"Name of the stream, or id: and its id."`
}

// Help is shown by novad stream set --help.
func (streamSetCmd) Help() string {
	return `A flag that is not given leaves its bound as it is. Records that a bound expires are not read any more at once, and
destroyed soon after; a longer bound does not bring them back.`
}

// Run changes the policy and describes the stream.
func (c *streamSetCmd) Run(p *process) error {
	if err := checkStream(c.Stream); err != nil {
		return err
	}
	if !c.given() {
		return usagef("nothing to set: give --max-age or --max-bytes (none removes a bound)")
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.Close()
	s, err := client.SetPolicy(p.ctx, c.Stream, c.change())
	if err != nil {
		return noStream(c.Stream, err)
	}
	return c.printStream(p.stdout, s)
}
