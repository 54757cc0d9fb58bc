// Package backup is the file that holds a backup of the embedded metadata store: a tar archive of a checkpoint's
// files, which any tar reads, with an entry before them that says what it is and one behind them that says
// what must be in it.
//
//	nova-backup         JSON: kind, format, when and by which program it was made (Header)
//	…                   the files of the checkpoint, all in one folder
//	nova-backup-sums    a line for each file, as sha256sum prints them
//
// The first entry keeps its place and the meaning of "format" in later versions, so that a backup of the future is told
// from damage. A file that was cut off lacks the last entry, and every byte of the others is summed: a backup is
// read whole or not at all.
package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Format is the version that this package writes and reads.
const Format = 1

const (
	kind       = "nova metadata backup"
	headerName = "nova-backup"
	sumsName   = "nova-backup-sums"

	maxHeader = 64 << 10
	maxFiles  = 1 << 20
	maxName   = 128
	chunk     = 1 << 20
)

// Header says what a backup is.
type Header struct {
	Kind   string `json:"kind"`
	Format int    `json:"format"`
	// Created is when it was taken: everything answered before is in it.
	Created time.Time `json:"created"`
	// WholeUntil is until when nothing that it names is deleted, but for what was half dead when it was taken.
	WholeUntil time.Time `json:"whole_until"`
	Program    string    `json:"program"` // version of the program that made it
}

var (
	// ErrDamaged: it is no backup, or some of its bytes are missing or wrong.
	ErrDamaged = errors.New("backup is damaged")
	// ErrVersion: it was made by a later program, which alone can read it.
	ErrVersion = errors.New("backup of a later version")
)

func damaged(format string, a ...any) error {
	return fmt.Errorf("%w: %w", ErrDamaged, fmt.Errorf(format, a...))
}

// Write writes the files of a folder, which nobody changes meanwhile, as a backup. Kind and Format of h are set by it.
// It ends soon after ctx, with its error.
func Write(ctx context.Context, w io.Writer, dir string, h Header) error {
	h.Kind, h.Format = kind, Format
	files, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	head, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	t := tar.NewWriter(w)
	put := func(name string, size int64, from io.Reader) error {
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: h.Created.Truncate(time.Second), Format: tar.FormatPAX}); err != nil {
			return fmt.Errorf("backup of %s: %w", name, err)
		}
		for left := size; left > 0; left -= min(left, chunk) {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("backup of %s: %w", name, err)
			}
			if _, err := io.CopyN(t, from, min(left, chunk)); err != nil {
				return fmt.Errorf("backup of %s: %w", name, err)
			}
		}
		return nil
	}
	if err := put(headerName, int64(len(head)), bytes.NewReader(head)); err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, f := range files {
		if err := checkName(f.Name()); err != nil || !f.Type().IsRegular() {
			return fmt.Errorf("backup: %s is no file of a checkpoint (%w)", filepath.Join(dir, f.Name()), errors.Join(err, fmt.Errorf("it is %v", f.Type())))
		}
		sum, err := putFile(filepath.Join(dir, f.Name()), put)
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", sum, f.Name())
	}
	if err := put(sumsName, int64(sums.Len()), &sums); err != nil {
		return err
	}
	if err := t.Close(); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return nil
}

func putFile(path string, put func(string, int64, io.Reader) error) (sum string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("backup: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("backup: %w", err)
	}
	digest := sha256.New()
	err = put(filepath.Base(path), info.Size(), io.TeeReader(f, digest))
	return hex.EncodeToString(digest.Sum(nil)), err
}

// checkName refuses what is no plain file name: nothing is written outside the folder that it is unpacked to.
func checkName(name string) error {
	if name == "" || len(name) > maxName || name[0] == '.' || strings.HasPrefix(name, headerName) {
		return fmt.Errorf("%q cannot be a file of a checkpoint", name)
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '-' && c != '_' {
			return fmt.Errorf("%q cannot be a file of a checkpoint", name)
		}
	}
	return nil
}

// Check reads a backup and tells whether it is whole.
//
// Errors: ErrDamaged, ErrVersion, and those of r.
func Check(r io.Reader) (Header, error) {
	return read(r, func(_ string, from io.Reader) error {
		_, err := io.Copy(io.Discard, from)
		return err
	})
}

// Unpack writes the files of a backup to a folder that is there and empty, and syncs them and the folder. No more than most
// bytes are written: the size of the backup itself, for it is not compressed. What an error leaves in the folder is no store.
//
// Errors: ErrDamaged, ErrVersion, and those of r and of the disk.
func Unpack(r io.Reader, dir string, most int64) (Header, error) {
	h, err := read(r, func(name string, from io.Reader) error {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		n, err := io.Copy(f, io.LimitReader(from, most+1))
		if most -= n; err == nil && most < 0 {
			err = damaged("its files are larger than itself")
		}
		if err == nil {
			err = f.Sync()
		}
		return errors.Join(err, f.Close())
	})
	if err != nil {
		return Header{}, err
	}
	d, err := os.Open(dir)
	if err != nil {
		return Header{}, err
	}
	return h, errors.Join(d.Sync(), d.Close())
}

// read hands each file to take, in the order of the backup, and compares the sums at the end.
func read(r io.Reader, take func(name string, from io.Reader) error) (Header, error) {
	t := tar.NewReader(r)
	h, err := readHeader(t)
	if err != nil {
		return Header{}, err
	}
	var sums bytes.Buffer
	var names []string
	for {
		entry, err := next(t)
		if err != nil {
			return Header{}, err
		}
		if entry.Name == sumsName {
			break
		}
		if err := checkName(entry.Name); err != nil {
			return Header{}, damaged("%w", err)
		}
		if names = append(names, entry.Name); len(names) > maxFiles {
			return Header{}, damaged("it has more than %d files", maxFiles)
		}
		digest := sha256.New()
		if err := take(entry.Name, io.TeeReader(source{t}, digest)); err != nil {
			return Header{}, fmt.Errorf("file %s of the backup: %w", entry.Name, err)
		}
		fmt.Fprintf(&sums, "%x  %s\n", digest.Sum(nil), entry.Name)
	}
	if slices.Sort(names); len(slices.Compact(names)) < len(names) {
		return Header{}, damaged("two of its files have one name")
	}
	said, err := io.ReadAll(io.LimitReader(source{t}, int64(sums.Len())+1))
	switch {
	case err != nil:
		return Header{}, err
	case !bytes.Equal(said, sums.Bytes()):
		return Header{}, damaged("the sums of its files are not those at its end")
	}
	if _, err := t.Next(); !errors.Is(err, io.EOF) {
		return Header{}, damaged("it goes on behind its end")
	}
	return h, padding(r)
}

// padding reads what is behind the end of the archive, which the reader of tar never looks at. Some programs fill up
// a last block with zeros; anything else is no part of a backup.
func padding(r io.Reader) error {
	b := make([]byte, 64<<10)
	for {
		n, err := r.Read(b)
		for _, c := range b[:n] {
			if c != 0 {
				return damaged("it goes on behind its end")
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

func readHeader(t *tar.Reader) (h Header, err error) {
	entry, err := next(t)
	if err != nil {
		return h, err
	}
	if entry.Name != headerName || entry.Size > maxHeader {
		return h, damaged("it does not begin as a backup does, but with %q", entry.Name)
	}
	b, err := io.ReadAll(source{t})
	if err != nil {
		return h, err
	}
	var first struct {
		Kind   string `json:"kind"`
		Format int    `json:"format"`
	}
	if err := json.Unmarshal(b, &first); err != nil || first.Kind != kind || first.Format < 1 {
		return h, damaged("its first entry does not say what it is")
	}
	if first.Format > Format {
		return h, fmt.Errorf("%w: it has format %d, this program reads up to %d: upgrade novad", ErrVersion, first.Format, Format)
	}
	if err := json.Unmarshal(b, &h); err != nil {
		return h, damaged("its first entry: %w", err)
	}
	return h, nil
}

// next is the next entry, which is a plain file.
func next(t *tar.Reader) (*tar.Header, error) {
	entry, err := t.Next()
	switch {
	case errors.Is(err, io.EOF):
		return nil, damaged("it was cut off: its last entry is missing")
	case err != nil:
		return nil, cut(err)
	case entry.Typeflag != tar.TypeReg:
		return nil, damaged("%q is no plain file", entry.Name)
	}
	return entry, nil
}

// source is the entry of a tar, whose errors say what is damage.
type source struct{ t *tar.Reader }

func (s source) Read(p []byte) (int, error) {
	n, err := s.t.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = cut(err)
	}
	return n, err
}

func cut(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return damaged("it was cut off")
	case errors.Is(err, tar.ErrHeader):
		return damaged("it is no tar archive, or was cut off")
	}
	return err
}
