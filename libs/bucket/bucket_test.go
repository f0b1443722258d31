package bucket_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cabine-pix/cabine/libs/bucket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func directory(t *testing.T) (b *bucket.Bucket, dir, scratch string) {
	t.Helper()
	dir, scratch = t.TempDir(), t.TempDir()
	b, err := bucket.New(bucket.Config{URL: "file://" + dir, Scratch: scratch})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b, dir, scratch
}

func list(t *testing.T, b *bucket.Bucket) (all []bucket.Object) {
	t.Helper()
	for o, err := range b.List(t.Context()) {
		require.NoError(t, err)
		all = append(all, o)
	}
	return all
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	}))
	return all
}

// What is put is listed and fetched; written again it has another version; no trace of a copy or of a sidecar is left.
func TestObjectsOfADirectory(t *testing.T) {
	t.Parallel()
	b, dir, scratch := directory(t)
	require.Empty(t, list(t, b))
	require.NoError(t, b.Put(t.Context(), "a/x.zip", strings.NewReader("hello")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "y.zip"), []byte("by others"), 0o600))
	all := list(t, b)
	require.Equal(t, []string{"a/x.zip", "y.zip"}, []string{all[0].Name, all[1].Name})
	require.Equal(t, []string{"a/x.zip", "y.zip"}, names(t, dir))
	require.Equal(t, all, list(t, b), "nothing changed")

	local, err := b.Fetch(t.Context(), all[0], 5)
	require.NoError(t, err)
	require.EqualValues(t, 5, local.Size())
	got, err := io.ReadAll(io.NewSectionReader(local, 1, 3))
	require.NoError(t, err)
	require.Equal(t, "ell", string(got))
	require.Empty(t, names(t, scratch), "a copy has no name")
	require.NoError(t, local.Close())

	later := time.Now().Add(time.Second)
	require.NoError(t, b.Put(t.Context(), "a/x.zip", strings.NewReader("HELLO")))
	require.NoError(t, os.Chtimes(filepath.Join(dir, "a/x.zip"), later, later))
	require.NotEqual(t, all[0].Version, list(t, b)[0].Version)
}

// What is too large, gone, or not what was listed is not handed over.
func TestWhatIsNotFetched(t *testing.T) {
	t.Parallel()
	b, dir, scratch := directory(t)
	require.NoError(t, b.Put(t.Context(), "x", strings.NewReader("hello")))
	o := list(t, b)[0]
	_, err := b.Fetch(t.Context(), o, 4)
	require.ErrorIs(t, err, bucket.ErrTooLarge)
	for _, other := range []string{"hell", "hello!"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "x"), []byte(other), 0o600))
		_, err = b.Fetch(t.Context(), o, 100)
		require.ErrorIs(t, err, bucket.ErrChanged)
	}
	require.NoError(t, os.Remove(filepath.Join(dir, "x")))
	_, err = b.Fetch(t.Context(), o, 100)
	require.ErrorIs(t, err, bucket.ErrNotFound)
	require.Empty(t, names(t, scratch))
}

// A source that breaks off leaves what was there, and nothing beside it.
func TestAPutIsWholeOrNothing(t *testing.T) {
	t.Parallel()
	b, dir, _ := directory(t)
	require.NoError(t, b.Put(t.Context(), "x", strings.NewReader("old")))
	broken := errors.New("broken")
	err := b.Put(t.Context(), "x", io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), iotest.ErrReader(broken)))
	require.ErrorIs(t, err, broken)
	got, err := os.ReadFile(filepath.Join(dir, "x"))
	require.NoError(t, err)
	require.Equal(t, "old", string(got))
	require.Equal(t, []string{"x"}, names(t, dir))
}

// Names do not lead out of the directory.
func TestNamesStayInTheDirectory(t *testing.T) {
	t.Parallel()
	outer := t.TempDir()
	dir := filepath.Join(outer, "in")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(outer, "secret"), []byte("hello"), 0o600))
	b, err := bucket.New(bucket.Config{URL: "file://" + dir})
	require.NoError(t, err)
	_, err = b.Fetch(t.Context(), bucket.Object{Name: "../secret", Size: 5}, 100)
	require.ErrorIs(t, err, bucket.ErrNotFound)
	_ = b.Put(t.Context(), "../other", strings.NewReader("x")) // whatever it says
	require.Equal(t, []string{"secret"}, func() (files []string) {
		all, err := os.ReadDir(outer)
		require.NoError(t, err)
		for _, e := range all {
			if !e.IsDir() {
				files = append(files, e.Name())
			}
		}
		return files
	}())
	require.NoError(t, b.Close())
}

// A directory that is not there yet is an error of each call, and none when it has come. Part of a bucket is one.
func TestABucketThatComesLater(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "later")
	b, err := bucket.New(bucket.Config{URL: "file://" + dir + "?prefix=in/"})
	require.NoError(t, err)
	require.Error(t, b.Open(t.Context()))
	for _, err := range b.List(t.Context()) {
		require.Error(t, err)
	}
	require.Error(t, b.Put(t.Context(), "x", strings.NewReader("x")))
	_, err = b.Fetch(t.Context(), bucket.Object{Name: "x"}, 1)
	require.Error(t, err)
	require.NoError(t, b.Close())
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, b.Put(t.Context(), "x", strings.NewReader("x")))
	require.Equal(t, []string{"in/x"}, names(t, dir))
	require.Equal(t, "x", list(t, b)[0].Name)
	require.NoError(t, b.Close())
	require.Len(t, list(t, b), 1, "it opens again")
}

// A caller who gives up is heard.
func TestListingAndPuttingEnd(t *testing.T) {
	t.Parallel()
	b, _, _ := directory(t)
	for i := range 3 {
		require.NoError(t, b.Put(t.Context(), fmt.Sprint(i), strings.NewReader("x")))
	}
	n := 0
	for _, err := range b.List(t.Context()) {
		require.NoError(t, err)
		if n++; n == 2 {
			break
		}
	}
	require.Equal(t, 2, n)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range b.List(ctx) {
		require.ErrorIs(t, err, context.Canceled)
	}
	require.Error(t, b.Put(ctx, "3", strings.NewReader("x")))
	require.Len(t, list(t, b), 3)
}

// An S3 bucket is opened without a network, and only where it is one. Nothing of a URL is repeated.
func TestURLs(t *testing.T) {
	t.Parallel()
	b, err := bucket.New(bucket.Config{URL: "s3://files?region=sa-east-1&prefix=extrato/"})
	require.NoError(t, err)
	require.NoError(t, b.Open(t.Context()))
	require.NoError(t, b.Close())
	for _, url := range []string{
		"", "files", "file://host/x", "file:x", "s3://", "s3:///x", "s3://files/x", "mem://", "gs://x", "https://x", "s3://hunter2:hunter2@x",
		"s3://%zzhunter2",
	} {
		_, err := bucket.New(bucket.Config{URL: url})
		require.Error(t, err, url)
		require.NotContains(t, err.Error(), "hunter2")
	}
	_, err = bucket.New(bucket.Config{URL: "file:///x", FetchTimeout: 1, ListTimeout: -1})
	require.ErrorContains(t, err, "FetchTimeout is 1ns")
	require.ErrorContains(t, err, "ListTimeout is -1ns")
}
