package play

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nova-store/nova/internal/allocation"
)

// rewritten is the scenario's lines as they were understood, each on the line where it was: its words, one space
// between them, its options in the order of their names.
func (s *Script) rewritten(declared map[int]string) string {
	lines := maps.Clone(declared)
	for _, st := range s.steps {
		words := append([]string{st.verb}, st.args...)
		for _, k := range slices.Sorted(maps.Keys(st.opts)) {
			words = append(words, k+"="+st.opts[k])
		}
		lines[st.line] = strings.Join(words, " ")
	}
	var b strings.Builder
	last := 0
	for _, n := range slices.Sorted(maps.Keys(lines)) {
		b.WriteString(strings.Repeat("\n", n-last-1) + lines[n] + "\n")
		last = n
	}
	return b.String()
}

// declarations are the lines of a scenario that only say what there is, which a Script does not keep as they were.
func declarations(text string) map[int]string {
	out := make(map[int]string)
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) > 0 && verbs[words[0]].play == nil {
			out[i+1] = strings.Join(words, " ")
		}
	}
	return out
}

// perByte bounds what reading a scenario allocates for each byte: a word like a0..a1000 stands for a thousand.
const perByte = 8 << 10

// FuzzScript: whatever the text, ParseScript neither panics nor takes more memory than the text can stand for,
// and what it refuses it refuses as a ScriptError with the line. What it accepts it reads again, to the same
// effect, from what it understood.
func FuzzScript(f *testing.F) {
	files, err := filepath.Glob("../../testdata/scenarios/*.nova")
	if err != nil || len(files) == 0 {
		f.Fatalf("no scenario to begin with: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("node a\ncreate s1..s1001\nappend s1..s1001 by=w1..w3")
	f.Add("node a\nfault any arm span/{s}/* fails")
	f.Fuzz(func(t *testing.T, text string) {
		var s *Script
		var err error
		allocation.Bounded(t, perByte*len(text), func() { s, err = ParseScript("x.nova", strings.NewReader(text)) })
		if err != nil {
			var e *ScriptError
			if !errors.As(err, &e) && !errors.Is(err, bufio.ErrTooLong) {
				t.Fatalf("an undocumented error: %v", err)
			}
			if e != nil && (e.Problem == "" || e.Line > strings.Count(text, "\n")+1) {
				t.Fatalf("an error that helps nobody: %v", err)
			}
			return
		}
		again, err := ParseScript("x.nova", strings.NewReader(s.rewritten(declarations(text))))
		if err != nil || len(again.steps) != len(s.steps) {
			t.Fatalf("what was understood is not: %v", err)
		}
		for i := range s.steps { // their functions are those of one table, and cannot be compared
			s.steps[i].expect.subject, again.steps[i].expect.subject = subject{}, subject{}
		}
		if !reflect.DeepEqual(s, again) {
			t.Fatalf("%+v is read again as %+v", s, again)
		}
	})
}

// perSavedByte bounds what reading a saved run allocates for each byte: decisions are deflated, a thousand to a
// byte at most, and take 8 bytes each in a list that is copied as it grows.
const perSavedByte = 40 << 10

// FuzzSaved: whatever the bytes, ReadSaved neither panics nor takes more memory than they can stand for, and what
// it accepts it reads again from what is written of it, which is the same bytes every time.
func FuzzSaved(f *testing.F) {
	for seed := uint64(1); seed <= 2; seed++ {
		s, _ := SaveSeed(seed, Options{MaxSteps: 50})
		f.Add(saved(f, s))
	}
	s, _, err := SaveScenario("node a\ncreate s\nappend s\n", "small.nova", 5, nil, Options{})
	if err != nil {
		f.Fatal(err)
	}
	s.Cut = &SavedCut{Step: 40, Side: "after", Mode: "all", Then: &SavedCut{Step: 60, Side: "before"}}
	f.Add(saved(f, s))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s *Saved
		var err error
		allocation.Bounded(t, perSavedByte*len(b), func() { s, err = ReadSaved(bytes.NewReader(b)) })
		if err != nil {
			if !errors.Is(err, ErrBadSaved) {
				t.Fatalf("an undocumented error: %v", err)
			}
			return
		}
		written := saved(t, s)
		again, err := ReadSaved(bytes.NewReader(written))
		if err != nil || !bytes.Equal(written, saved(t, again)) {
			t.Fatalf("a saved run does not survive being saved: %v", err)
		}
		if fmt.Sprint(s.Cut.cut()) != fmt.Sprint(again.Cut.cut()) {
			t.Fatalf("the cut %v is read again as %v", s.Cut.cut(), again.Cut.cut())
		}
	})
}

func saved(t testing.TB, s *Saved) []byte {
	var b bytes.Buffer
	if err := s.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
