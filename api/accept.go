package api

import (
	"strconv"
	"strings"
)

// negotiate picks, of the media types offered, the one that an Accept header likes best, and of
// equals the first; "" where it allows none. No header allows all. Of the ranges that match a type the
// most specific one decides (RFC 9110, section 12.5.1).
func negotiate(accept string, offered ...string) string {
	if strings.TrimSpace(accept) == "" {
		return offered[0]
	}
	best, bestQuality := "", 0.0
	for _, mediaType := range offered {
		if q := quality(accept, mediaType); q > bestQuality {
			best, bestQuality = mediaType, q
		}
	}
	return best
}

// quality is how much an Accept header likes a media type: 0, not at all, to 1.
func quality(accept, mediaType string) float64 {
	kind, _, _ := strings.Cut(mediaType, "/")
	q, specific := 0.0, 0
	for part := range strings.SplitSeq(accept, ",") {
		mediaRange, params, _ := strings.Cut(part, ";")
		matches := 0
		switch strings.ToLower(strings.TrimSpace(mediaRange)) {
		case mediaType:
			matches = 3
		case kind + "/*":
			matches = 2
		case "*/*":
			matches = 1
		}
		if matches > specific {
			q, specific = weight(params), matches
		}
	}
	return q
}

// weight is the q of a range's parameters; 1 without one, 0 where it is no number.
func weight(params string) float64 {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(param), "=")
		if strings.EqualFold(name, "q") {
			q, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0
			}
			return q
		}
	}
	return 1
}
