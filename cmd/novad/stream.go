package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/nova-store/nova/api"
)

// streamCmd is the commands about streams themselves.
type streamCmd struct {
	Create streamCreateCmd `cmd:"" help:"Create a stream."`
	Ls     streamLsCmd     `cmd:"" help:"List streams."`
	Show   streamShowCmd   `cmd:"" help:"Describe a stream."`
	Set    streamSetCmd    `cmd:"" help:"Change what is kept of a stream."`
	Trim   streamTrimCmd   `cmd:"" help:"Make all records below an offset unreadable, for ever."`
	Rm     streamRmCmd     `cmd:"" help:"Delete streams."`

	Undelete streamUndeleteCmd `cmd:"" help:"Undo the deletion of a stream."`
}

// outputFlag is how a command prints.
type outputFlag struct {
	Output string `help:"How to print: table or json." enum:"table,json" default:"table" env:"-"`
}

// printStream prints one stream.
func (f outputFlag) printStream(w io.Writer, s api.Stream) error {
	if f.Output == "json" {
		return printJSON(w, s)
	}
	return renderTable(w, 2, table.Row{"stream", s.Name}, []table.Row{
		{"id", s.ID},
		{"created", s.Created.Format(time.RFC3339)},
		{"first offset", s.FirstOffset},
		{"next offset", s.NextOffset},
		{"bytes", s.Bytes},
		{"max age", ageText(s.Policy)},
		{"max bytes", sizeText(s.Policy)},
	})
}

func ageText(p api.Policy) string {
	if p.MaxAgeMS == 0 {
		return "-"
	}
	return maxAge{d: time.Duration(p.MaxAgeMS) * time.Millisecond}.String()
}

func sizeText(p api.Policy) string {
	if p.MaxBytes == 0 {
		return "-"
	}
	return byteSize(p.MaxBytes).String()
}

// noStream says which stream does not exist; another error is as it was.
func noStream(stream string, err error) error {
	if isProblem(err, api.ProblemNoStream) {
		return fmt.Errorf("stream %s does not exist", strconv.Quote(stream))
	}
	return err
}
