package main

// streamTrimCmd trims a stream.
type streamTrimCmd struct {
	serverFlag
	outputFlag
	Stream string `arg:"" help:"Name of the stream, or id: and its id."`
	Before uint64 `required:"" help:"The first offset that stays readable." env:"-" placeholder:"OFFSET"`
}

// Run trims and describes the stream.
func (c *streamTrimCmd) Run(p *process) error {
	if err := checkStream(c.Stream); err != nil {
		return err
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.Close()
	s, err := client.Trim(p.ctx, c.Stream, c.Before)
	if err != nil {
		return noStream(c.Stream, err)
	}
	return c.printStream(p.stdout, s)
}
