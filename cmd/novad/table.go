package main

import (
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// renderTable prints a table: with lines on a terminal, plain columns elsewhere. Columns from
// rightFrom on are numbers.
func renderTable(w io.Writer, rightFrom int, header table.Row, rows []table.Row) error {
	t := table.NewWriter()
	t.AppendHeader(header)
	t.AppendRows(rows)
	configs := make([]table.ColumnConfig, 0, len(header))
	for i := rightFrom; i < len(header); i++ {
		configs = append(configs, table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(configs)
	style := table.StyleLight
	if isTerminal(w) {
		style = table.StyleRounded
	}
	style.Options.DrawBorder, style.Options.SeparateColumns = isTerminal(w), isTerminal(w)
	style.Options.SeparateHeader = isTerminal(w)
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	return printLine(w, t.Render())
}
