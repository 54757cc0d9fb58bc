package api

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/clock"
)

// taker is a client that takes a while for each write, and notes until when it would have been waited for.
type taker struct {
	*httptest.ResponseRecorder
	clock.Clock
	now       time.Time
	takes     time.Duration
	deadlines []time.Duration
}

func (c *taker) Now() time.Time { return c.now }

func (c *taker) SetWriteDeadline(at time.Time) error {
	c.deadlines = append(c.deadlines, at.Sub(c.now))
	return nil
}

func (c *taker) Write(p []byte) (int, error) {
	c.now = c.now.Add(c.takes)
	return len(p), nil
}

// A client that takes each piece well within the time for one, and trickles nevertheless, is cut off; one that takes enough is not, however
// long the backup is, and one whose server is slow neither.
func TestSlowBackupIsCutOff(t *testing.T) {
	piece := make([]byte, backupRate)
	start := func(takes time.Duration) (*taker, *backupWriter) {
		c := &taker{ResponseRecorder: httptest.NewRecorder(), now: time.Unix(0, 0), takes: takes}
		return c, &backupWriter{w: c, control: c, clk: c}
	}
	c, w := start(21 * time.Second)
	for range 4 { // 80 s more than the 4 s that they may take: the first three leave nothing of the minute
		if _, err := w.Write(piece); err != nil {
			require.ErrorIs(t, err, errSlowBackup)
			break
		}
	}
	require.Equal(t, 63*time.Second, c.now.Sub(time.Unix(0, 0)))
	require.Equal(t, []time.Duration{60 * time.Second, 40 * time.Second, 20 * time.Second}, c.deadlines)

	c, w = start(time.Second)
	for range 1000 {
		_, err := w.Write(piece)
		require.NoError(t, err)
		c.now = c.now.Add(time.Minute) // until the server has read the next one
	}
	require.Equal(t, backupWriteTimeout, c.deadlines[999])
}
