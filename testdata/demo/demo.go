// Package demo holds the log that novad demo appends: some hours of Harborgate, a
// made-up container terminal. Among its lines are stack traces, empty lines, JSON and
// names outside ASCII.
package demo

import _ "embed"

// Log is the log, a record a line.
//
//go:embed harborgate.log
var Log []byte
