package play

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/sim"
)

// Every field of a plan is saved: one that is not listed would be lost in a saved run.
func TestPlanListsItsFields(t *testing.T) {
	for _, s := range []struct {
		of     any
		fields []field
	}{
		{plan{}, new(plan).fields()}, {chaosPlan{}, new(chaosPlan).fields()},
		{livesPlan{}, new(livesPlan).fields()}, {writerPlan{}, new(writerPlan).fields()},
	} {
		require.Len(t, s.fields, reflect.TypeOf(s.of).NumField(), "%T: list each of its fields in plan.go", s.of)
		names := map[string]bool{}
		for _, f := range s.fields {
			require.False(t, names[f.name], "%T: two fields are called %s", s.of, f.name)
			names[f.name] = true
		}
	}
}

func TestPlanSurvivesSaving(t *testing.T) {
	for seed := uint64(1); seed <= 100; seed++ {
		p := draw(seed)
		q := p.clone()
		// Compared as text, in which an empty list is as good as none.
		a, err := json.Marshal(&p)
		require.NoError(t, err)
		b, err := json.Marshal(q)
		require.NoError(t, err)
		require.JSONEq(t, string(a), string(b))
		require.Equal(t, p.String(), q.String())
	}
	require.ErrorContains(t, json.Unmarshal([]byte(`{"chaos":{"meteor":1}}`), new(plan)), `no "meteor" in a plan`)
	require.ErrorContains(t, json.Unmarshal([]byte(`{"readers":"two"}`), new(plan)), "readers")
}

// reread writes a run and reads it back.
func reread(t *testing.T, s *Saved) *Saved {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, s.Write(&b))
	out, err := ReadSaved(&b)
	require.NoError(t, err)
	return out
}

// A saved run is played again without its seed, to the same hash: chance decides nothing that is
// not on file.
func TestReplayIsTheSameRun(t *testing.T) {
	for seed := uint64(1); seed <= 6; seed++ {
		plain := Seed(seed, Options{})
		s, o := SaveSeed(seed, Options{})
		require.Equal(t, plain.Hash, o.Hash, "to be saved changes nothing")
		s = reread(t, s)
		require.Zero(t, s.Plan.config.Seed)
		r, err := s.Play(Options{})
		require.NoError(t, err)
		require.Nil(t, r.Left, "seed %d", seed)
		require.True(t, r.Same, "seed %d", seed)
		require.Equal(t, plain.Hash, r.Hash)
		require.Equal(t, plain.Marks, r.Marks)
	}
}

func TestReplayOfAScenario(t *testing.T) {
	script := small + "expect next s 3\n"
	s, o, err := SaveScenario(script, "small.nova", 5, nil, Options{})
	require.NoError(t, err)
	require.Equal(t, "expectation", o.Finding.Invariant)
	r, err := reread(t, s).Play(Options{})
	require.NoError(t, err)
	require.True(t, r.Same)
	require.Equal(t, o.Finding.Error(), r.Finding.Error())

	cut := &Cut{Kills: []sim.Kill{{Step: 40, Side: sim.After}, {Step: 60}}, Mode: CutAll}
	s, o, err = SaveScenario(small, "small.nova", 5, cut, Options{})
	require.NoError(t, err)
	require.Nil(t, o.Finding)
	r, err = reread(t, s).Play(Options{})
	require.NoError(t, err)
	require.True(t, r.Same)
	require.Equal(t, "novasim -scenario small.nova -seed 5 -cut 40:after+60:before", s.From)
}

// What was decided by another program is followed as far as it fits, and it is told where it was left.
func TestReplayTellsWhereItLeft(t *testing.T) {
	s, _ := SaveSeed(3, Options{})
	s.Plan.writers[0].appends++
	r, err := reread(t, s).Play(Options{})
	require.NoError(t, err)
	require.False(t, r.Same)
	require.NotNil(t, r.Left)
	require.Positive(t, r.Left.Step)
	require.NotEmpty(t, r.Left.String())
}

func TestReadSavedRefuses(t *testing.T) {
	s, _ := SaveSeed(3, Options{})
	var b bytes.Buffer
	require.NoError(t, s.Write(&b))
	for from, to := range map[string]string{
		`"version": 1`:     `"version": 7`,
		`"decisions"`:      `"decided"`,
		`"readers"`:        `"listeners"`,
		`"n":`:             `"n":1`,
		`"values": "`:      `"values": "!`,
		`"decisions": {`:   `"decisions": [{`,
		"{\n \"version\":": "",
	} {
		require.Contains(t, b.String(), from)
		_, err := ReadSaved(strings.NewReader(strings.Replace(b.String(), from, to, 1)))
		require.Error(t, err, "%s", to)
	}
}
