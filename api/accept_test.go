package api

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAcceptPicksTheMediaType(t *testing.T) {
	for accept, want := range map[string]string{
		"":                                       TypeJSON,
		" ":                                      TypeJSON,
		"*/*":                                    TypeJSON, // what curl sends
		"application/*":                          TypeJSON,
		"Application/JSON":                       TypeJSON,
		TypeNDJSON:                               TypeNDJSON,
		TypeNDJSON + ", */*":                     TypeJSON,
		TypeNDJSON + ", */*;q=0.1":               TypeNDJSON,
		TypeEntries + ";q=0.5," + TypeNDJSON:     TypeNDJSON,
		"text/html, application/json; q=0.5":     TypeJSON,
		"application/json;q=0, */*":              TypeNDJSON,
		"application/json;charset=utf-8;q=1.0":   TypeJSON,
		"application/json;q=0":                   "",
		"application/json;q=much":                "",
		"text/*":                                 "",
		"text/html":                              "",
		"application/*;q=0, " + TypeEntries + "": TypeEntries,
	} {
		require.Equal(t, want, negotiate(accept, TypeJSON, TypeNDJSON, TypeEntries), accept)
	}
}
