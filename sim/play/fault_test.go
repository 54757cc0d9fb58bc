package play

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// playText plays a script that has no errors.
func playText(t *testing.T, text string) ScenarioOutcome {
	t.Helper()
	s, err := ParseScript("x.nova", strings.NewReader(text))
	require.NoError(t, err)
	return Scenario(s, 1, nil, false, Options{})
}

const shared = `
world shared
timing put-horizon=2s session-ttl=1s max-clock-skew=100ms settle-age-cap=300ms settle-recheck=20s reap-grace=3s trim-grace=4s retire-grace=4s job-deadline=10s orphan-grace=20s
node a
start a
create s
`

// Each kind of fault befalls the call that it names, and the world holds.
func TestFaults(t *testing.T) {
	for action, marks := range map[string]string{
		"fault a PUT slot/* fails":                                      "star/star.slot.retry",
		"fault a PUT slot/* dropped":                                    "star/star.slot.retry",
		"fault a PUT slot/* lost":                                       "star/star.slot.own",
		"fault a PUT slot/* late=500ms":                                 "star/star.slot.retry",
		"fault a commit head/{s} lost":                                  "catalog/absorb.twin",
		"fault a commit head/{s} dropped":                               "catalog/commit.lost",
		"fault a commit head/{s} late=5s":                               "catalog/commit.lost",
		"fault a commit head/{s} fails":                                 "star/star.absorb.retry",
		"fault a PUT slot/* kill=before":                                "client/retried",
		"fault a PUT slot/* kill=after":                                 "auditor/slots-absorbed",
		"fault a PUT slot/* slow=12s":                                   "star/star.slot.undecided",
		"fault a scan span/{s}/* by=auditor/denorm short=0":             "catalog/scan.empty",
		"fault a GET slot/* by=auditor/* corrupt":                       "inject/corrupt",
		"fault a GET slot/*0 by=auditor/* corrupt times=3":              "auditor/slot-damaged",
		"fault a DELETE slot/* partial=1":                               "inject/partial",
		"fault a arm ref/settled* with=span/{s}/* lost":                 "catalog/swap.twin",
		"fault a drop due/denorm/* without=head/{s} nth=1 times=2 lost": "catalog/batch.conflict",
	} {
		t.Run(action, func(t *testing.T) {
			o := playText(t, shared+action+` as=it
append s records=2 times=3 wait=no
await it
tick 1s
release it
start a
tick 16s
append s
trim s 7
converge
read s
reached `+marks)
			require.Nil(t, o.Finding)
		})
	}
}

// What is held goes on when it is released, and no sooner.
func TestHold(t *testing.T) {
	o := playText(t, shared+`
fault a commit head/{s} hold as=it
append s wait=no
await it
tick 900ms
expect next s 0
release it
tick 100ms
expect next s 1
`)
	require.Nil(t, o.Finding)
	o = playText(t, shared+`
fault a commit head/{s} late as=it
append s wait=no
await it
tick 5s
expect next s 1
release it
converge
expect next s 1
`)
	require.Nil(t, o.Finding)
}

// A node that pauses before a call has its effect only when it goes on.
func TestPauseAtCall(t *testing.T) {
	for action, next := range map[string]string{"pause": "1", "pause=before": "0"} {
		o := playText(t, shared+`
fault a commit head/{s} `+action+` as=it
append s wait=no
await it
tick 500ms
expect next s `+next+`
resume a
tick 500ms
expect next s 1
`)
		require.Nil(t, o.Finding, action)
	}
}

// A fault that never strikes is reported, but for a run that is cut.
func TestFaultThatNeverStrikes(t *testing.T) {
	const text = shared + "fault a LIST slot/* fails as=it\nawait it within=1s\n"
	o := playText(t, text)
	require.NotNil(t, o.Finding)
	require.Equal(t, "expectation", o.Finding.Invariant)
	require.Contains(t, o.Finding.Text, "fault it has not struck: 0 calls matched")
}
