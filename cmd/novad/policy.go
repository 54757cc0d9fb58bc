package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/nova-store/nova/api"
	"github.com/nova-store/nova/catalog"
)

// policyFlags say what is kept of a stream.
type policyFlags struct {
	MaxAge   maxAge   `help:"How old a record gets before it is expired, as 36h or 7d; 0 or none: it is not." env:"-" placeholder:"AGE"`
	MaxBytes maxBytes `help:"How much payload may lie behind a record before it is expired, as 1GiB; 0 or none: any." env:"-" placeholder:"SIZE"`
}

// change is what the flags that were given say.
func (f policyFlags) change() api.PolicyChange {
	var c api.PolicyChange
	if f.MaxAge.given {
		ms := f.MaxAge.d.Milliseconds()
		c.MaxAgeMS = &ms
	}
	if f.MaxBytes.given {
		n := uint64(f.MaxBytes.n)
		c.MaxBytes = &n
	}
	return c
}

func (f policyFlags) given() bool { return f.MaxAge.given || f.MaxBytes.given }

// maxAge is a duration with days, or none.
type maxAge struct {
	d     time.Duration
	given bool
}

// Decode reads a flag's value.
func (a *maxAge) Decode(ctx *kong.DecodeContext) error {
	token, err := ctx.Scan.PopValue("age")
	if err != nil {
		return err
	}
	a.given = true
	a.d, err = parseAge(fmt.Sprint(token.Value))
	return err
}

var ages = regexp.MustCompile(`^([0-9]+d)?([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))*$`)

var days = regexp.MustCompile(`^([0-9]{1,6})d`)

// parseAge reads none, 0, or a duration that may begin with days: 7d, 1d12h, 90m.
func parseAge(text string) (time.Duration, error) {
	bad, large := fmt.Errorf("%q is not an age like 90m, 36h, 7d or none", text), fmt.Errorf("%q is too large an age: it is more than 100 years", text)
	if ages.MatchString(text) && text != "" {
		bad = large // all that is wrong with it, where it can't be read, is its size
	}
	if text == "none" || text == "0" {
		return 0, nil
	}
	rest, whole := text, time.Duration(0)
	if m := days.FindStringSubmatch(text); m != nil {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			return 0, bad
		}
		rest, whole = strings.TrimPrefix(text, m[0]), time.Duration(n)*24*time.Hour
		if n > int(catalog.MaxPolicyAge/(24*time.Hour)) {
			return 0, large
		}
	}
	d := time.Duration(0)
	if rest != "" || text == "" { // nothing is not zero: a script's empty variable must not lift a bound
		var err error
		if d, err = time.ParseDuration(rest); err != nil {
			return 0, bad
		}
	}
	switch d += whole; {
	case d < 0:
		return 0, bad
	case d > 0 && d < time.Millisecond:
		return 0, fmt.Errorf("%q is less than a millisecond", text)
	case d > catalog.MaxPolicyAge:
		return 0, large
	}
	return d, nil
}

// String is what a flag takes.
func (a maxAge) String() string {
	n, rest := a.d/(24*time.Hour), a.d%(24*time.Hour)
	text := ""
	if n > 0 {
		text = fmt.Sprintf("%dd", n)
	}
	if rest > 0 || n == 0 {
		text += rest.String()
	}
	if t, ok := strings.CutSuffix(text, "m0s"); ok {
		text = t + "m"
	}
	if t, ok := strings.CutSuffix(text, "h0m"); ok {
		text = t + "h"
	}
	return text
}

// maxBytes is a size, or none.
type maxBytes struct {
	n     byteSize
	given bool
}

// Decode reads a flag's value.
func (b *maxBytes) Decode(ctx *kong.DecodeContext) error {
	token, err := ctx.Scan.PopValue("size")
	if err != nil {
		return err
	}
	b.given = true
	text := fmt.Sprint(token.Value)
	if text == "none" {
		return nil
	}
	return b.n.parse(text)
}
