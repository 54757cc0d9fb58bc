package main

import (
	"regexp"
	"strings"
)

// plainWord is what a shell takes for one word as it stands.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// quote returns a word as a shell is given it, so that a command that is printed can be pasted.
func quote(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// words splits a command that quote has made into its words again.
func words(command string) (out []string) {
	var word strings.Builder
	quoted, inside := false, false // within quotes; within a word
	end := func() {
		if inside {
			out = append(out, word.String())
			word.Reset()
		}
		inside = false
	}
	for i := 0; i < len(command); i++ {
		switch c := command[i]; {
		case c == '\'':
			quoted, inside = !quoted, true
		case !quoted && c == ' ':
			end()
		case !quoted && c == '\\' && i+1 < len(command):
			i++
			word.WriteByte(command[i])
			inside = true
		default:
			word.WriteByte(c)
			inside = true
		}
	}
	end()
	return out
}
