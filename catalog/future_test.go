package catalog

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A value of a later format is refused as such, by every reader that refuses anything, whatever it holds.
func TestValuesOfTheFutureAreRefused(t *testing.T) {
	for _, c := range codecs() {
		_, refuses := c.decode(nil)
		rapid.Check(t, func(t *rapid.T) {
			_, b := c.draw(t)
			b = append([]byte{}, b...)
			b[0] = rapid.ByteMin(markFormat+1).Draw(t, "format")
			_, err := c.decode(b)
			if refuses == nil {
				require.NoError(t, err, "%s: it may be an object's last watcher", c.name)
				err = CheckValueFormat(b)
			}
			require.ErrorIs(t, err, ErrFutureFormat, c.name)
			require.ErrorIs(t, err, ErrCorruptValue, c.name)
			require.ErrorContains(t, err, "upgrade novad", c.name)
		})
	}
}
