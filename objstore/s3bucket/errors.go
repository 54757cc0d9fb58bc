package s3bucket

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/smithy-go"

	"github.com/nova-store/nova/objstore"
)

// Codes of S3's errors that are told apart. The status alone tells nothing: a 409 may be a conflict
// that passes or a folder in the way, a 403 a forbidden request or one that came late.
const (
	codePrecondition = "PreconditionFailed"
	codeConflict     = "ConditionalRequestConflict"
	codeAborted      = "OperationAborted"
	codeFolder       = "ExistingObjectIsDirectory" // versitygw: a delete next to the put empties the folder
	codeNoKey        = "NoSuchKey"
	codeNoBucket     = "NoSuchBucket"
	codeRange        = "InvalidRange"
	codeDenied       = "AccessDenied"
	codeExpired      = "ExpiredRequest"
	codeInternal     = "InternalError"
	codeUnavailable  = "ServiceUnavailable"
	codeTimeout      = "RequestTimeout"
)

// expiredMessage is what tells a request that came late from one that is forbidden.
const expiredMessage = "request has expired"

const (
	maxErrorBytes   = 64 << 10
	maxErrorMessage = 200
)

// apiError is what a store answered to a put.
type apiError struct {
	status  int
	code    string // empty: the body was none of S3's
	message string
	// request and host are the store's own names of the request, by which whoever runs it finds it. Amazon's support asks for
	// both. Empty: none were told.
	request, host string
}

func (e *apiError) Error() string {
	s := fmt.Sprintf("status %d", e.status)
	if e.request != "" {
		s += ", request id " + e.request
	}
	if e.host != "" {
		s += ", host id " + e.host
	}
	if e.code == "" {
		return s
	}
	return fmt.Sprintf("%s: %s (%s)", e.code, e.message, s)
}

// shorten bounds what a store says, for the log.
func shorten(s string) string {
	if len(s) > maxErrorMessage {
		s = strings.ToValidUTF8(s[:maxErrorMessage], "") + "…"
	}
	return s
}

// readError reads the answer to a put that was not successful.
func readError(resp *http.Response) (*apiError, error) {
	e := &apiError{status: resp.StatusCode, request: shorten(resp.Header.Get("X-Amz-Request-Id")), host: shorten(resp.Header.Get("X-Amz-Id-2"))}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
	if err != nil {
		return nil, fmt.Errorf("read the answer of status %d: %w", resp.StatusCode, err)
	}
	var doc struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
		Message string
	}
	if xml.Unmarshal(body, &doc) == nil {
		e.code, e.message = doc.Code, shorten(doc.Message)
	}
	return e, nil
}

// verdict is what an answer says about a put.
type verdict int

const (
	refused verdict = iota // no effect, and never one
	exists                 // no effect: there is an object
	expired                // no effect: it came late
	busy                   // no effect, but it may have one when tried again
	unclear                // it may have its effect, or have had it
)

// judge reads a put's answer. What it does not know it takes for unclear, unless the client is told to be
// at fault, in S3's own words.
func judge(e *apiError) verdict {
	switch {
	case e.code == codePrecondition:
		return exists
	case e.code == codeConflict, e.code == codeAborted, e.code == codeFolder, throttles(e.code):
		return busy
	case e.code == codeExpired, e.code == codeDenied && strings.Contains(strings.ToLower(e.message), expiredMessage):
		return expired
	case e.code == "", e.code == codeTimeout, e.code == codeInternal, e.code == codeUnavailable:
		return unclear
	case e.status >= 400 && e.status < 500, e.status == http.StatusNotImplemented:
		return refused
	}
	return unclear
}

// throttles tells whether a code asks to come back later.
func throttles(code string) bool {
	switch code {
	case "SlowDown", "SlowDownRead", "SlowDownWrite", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled",
		"RequestThrottledException", "TooManyRequests", "TooManyRequestsException", "RequestLimitExceeded", "BandwidthLimitExceeded":
		return true
	}
	return false
}

// readErrorOf makes errors of a read or a listing typed.
func readErrorOf(err error) error {
	switch code := codeOf(err); {
	case err == nil:
		return nil
	case code == codeNoKey:
		return fmt.Errorf("%w: %w", objstore.ErrNotFound, err)
	case code == codeNoBucket:
		return fmt.Errorf("%w: %w", objstore.ErrNoBucket, err)
	case throttles(code):
		return fmt.Errorf("%w: %w", objstore.ErrThrottled, err)
	case code == "", code == codeInternal, code == codeUnavailable, code == codeTimeout:
		return fmt.Errorf("%w: %w", objstore.ErrUnavailable, err)
	}
	return err
}

// codeOf is the code of an error of S3's, or empty.
func codeOf(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// withoutURL takes the request's URL out of an error of net/http's: it carries the signature, by which
// anybody could send the request.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
