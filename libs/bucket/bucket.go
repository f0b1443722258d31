package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/blob/s3blob"
	"gocloud.dev/gcerrors"
)

// What callers branch on.
var (
	// ErrNotFound: there is no such object.
	ErrNotFound = errors.New("no such object")
	// ErrTooLarge: the object has more bytes than allowed.
	ErrTooLarge = errors.New("object is too large")
	// ErrChanged: the object is not what was listed.
	ErrChanged = errors.New("object changed since it was listed")
)

// Config says where the bucket is. The zero value of each field but URL means its default.
type Config struct {
	// URL is file:///directory, or s3://name with the query that gocloud.dev/blob/s3blob knows (region, endpoint, ...); ?prefix=
	// takes part of a bucket. Credentials are those of the machine's AWS configuration and never part of it. Required.
	URL string
	// Scratch is the directory for local copies, which needs room for the largest object. Default: the machine's for
	// temporary files.
	Scratch string
	// FetchTimeout bounds one Fetch or Put. Default 10 min.
	FetchTimeout time.Duration
	// ListTimeout bounds the wait for the next object of a List, and so for a page. Default 30 s.
	ListTimeout time.Duration
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	if c.FetchTimeout == 0 {
		c.FetchTimeout = 10 * time.Minute
	}
	if c.ListTimeout == 0 {
		c.ListTimeout = 30 * time.Second
	}
	return c
}

// Validate names every field that is wrong.
func (c Config) Validate() error {
	_, errURL := parse(c.URL)
	errs := []error{errURL}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"FetchTimeout", c.FetchTimeout}, {"ListTimeout", c.ListTimeout}} {
		if f.d < time.Millisecond {
			errs = append(errs, fmt.Errorf("%s is %v, want at least 1ms", f.name, f.d))
		}
	}
	return errors.Join(errs...)
}

// parse reads a URL and says nothing of what is in it, because somebody may have put a secret there.
func parse(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("URL cannot be read")
	case u.User != nil:
		return nil, errors.New("URL has credentials: they belong into the machine's AWS configuration")
	case u.Scheme == fileblob.Scheme && u.Host == "" && strings.HasPrefix(u.Path, "/"):
	case u.Scheme == s3blob.Scheme && u.Host != "" && strings.Trim(u.Path, "/") == "":
	default:
		return nil, errors.New("URL is neither file:///directory nor s3://name")
	}
	return u, nil
}

// Bucket is a place with objects. It is safe for concurrent use.
type Bucket struct {
	cfg Config
	url *url.URL

	mu     sync.Mutex
	opened *blob.Bucket
}

// New returns a bucket that was not looked for yet.
func New(cfg Config) (*Bucket, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("bucket config: %w", err)
	}
	u, err := parse(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("bucket config: %w", err)
	}
	return &Bucket{cfg: cfg, url: u}, nil
}

// Open opens the bucket, if no call did before. A directory must be there; of S3 only the configuration is read.
func (b *Bucket) Open(ctx context.Context) error {
	_, err := b.open(ctx)
	return err
}

// Close forgets the bucket; a later call opens it again.
func (b *Bucket) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.opened == nil {
		return nil
	}
	err := b.opened.Close()
	b.opened = nil
	if err != nil {
		return fmt.Errorf("close bucket: %w", err)
	}
	return nil
}

func (b *Bucket) open(ctx context.Context) (*blob.Bucket, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.opened != nil {
		return b.opened, nil
	}
	var opener blob.BucketURLOpener = &s3blob.URLOpener{}
	if b.url.Scheme == fileblob.Scheme {
		// Beside the file and not in the machine's directory for temporary files: a rename works within one file system.
		opener = &fileblob.URLOpener{Options: fileblob.Options{Metadata: fileblob.MetadataDontWrite, NoTempDir: true}}
	}
	u := *b.url
	query := u.Query()
	prefix := query.Get("prefix")
	query.Del("prefix")
	u.RawQuery = query.Encode()
	opened, err := opener.OpenBucketURL(ctx, &u)
	if err != nil {
		return nil, fmt.Errorf("open bucket: %w", err)
	}
	if prefix != "" {
		opened = blob.PrefixedBucket(opened, prefix)
	}
	b.opened = opened
	return opened, nil
}

// Object is one of a bucket, as it was when it was listed.
type Object struct {
	Name string
	// Version is another after the object was written again.
	Version string
	Size    int64
}

// List returns all objects, by name. An error is the last that it yields.
func (b *Bucket) List(ctx context.Context) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		bucket, err := b.open(ctx)
		if err != nil {
			yield(Object{}, err)
			return
		}
		for all := bucket.List(nil); ; {
			listed, err := next(ctx, all, b.cfg.ListTimeout)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(Object{}, fmt.Errorf("list bucket: %w", err))
				return
			}
			o := Object{
				Name: listed.Key, Size: listed.Size,
				Version: fmt.Sprintf("%d-%d-%x", listed.Size, listed.ModTime.UnixNano(), listed.MD5),
			}
			if !listed.IsDir && !yield(o, nil) {
				return
			}
		}
	}
}

func next(ctx context.Context, all *blob.ListIterator, within time.Duration) (*blob.ListObject, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := ctx.Err(); err != nil { // a directory does not ask
		return nil, err
	}
	return all.Next(ctx)
}

// Local is a copy of an object. It has no name, and is gone when it is closed or its process ends.
type Local struct {
	file *os.File
	size int64
}

// ReadAt implements io.ReaderAt.
func (l *Local) ReadAt(p []byte, off int64) (int, error) { return l.file.ReadAt(p, off) }

// Size is that of the object, in bytes.
func (l *Local) Size() int64 { return l.size }

// Close gives the room back.
func (l *Local) Close() error {
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("close local copy: %w", err)
	}
	return nil
}

// Fetch copies an object that was listed, of at most most bytes. The caller closes the copy.
func (b *Bucket) Fetch(ctx context.Context, o Object, most int64) (*Local, error) {
	if o.Size > most {
		return nil, fmt.Errorf("fetch: %d bytes, allowed are %d: %w", o.Size, most, ErrTooLarge)
	}
	bucket, err := b.open(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, b.cfg.FetchTimeout)
	defer cancel()
	from, err := bucket.NewReader(ctx, o.Name, nil)
	if err != nil {
		return nil, translate("fetch", err)
	}
	local, err := b.copy(from, o)
	if err := errors.Join(err, from.Close()); err != nil {
		if local != nil {
			err = errors.Join(err, local.Close())
		}
		return nil, translate("fetch", err)
	}
	return local, nil
}

func (b *Bucket) copy(from io.Reader, o Object) (*Local, error) {
	file, err := os.CreateTemp(b.cfg.Scratch, "cabine-*")
	if err != nil {
		return nil, fmt.Errorf("local copy: %w", err)
	}
	err = os.Remove(file.Name())
	if err == nil {
		var n int64
		// One byte more than listed is enough to see that it is another.
		n, err = io.Copy(file, io.LimitReader(from, o.Size+1))
		if err == nil && n != o.Size {
			err = fmt.Errorf("listed with %d bytes: %w", o.Size, ErrChanged)
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &Local{file: file, size: o.Size}, nil
}

// Put writes an object whole, over one that is there. If it fails, what was there before stands.
func (b *Bucket) Put(ctx context.Context, name string, from io.Reader) error {
	bucket, err := b.open(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, b.cfg.FetchTimeout)
	defer cancel()
	w, err := bucket.NewWriter(ctx, name, &blob.WriterOptions{ContentType: "application/zip"})
	if err != nil {
		return translate("put", err)
	}
	if _, err := io.Copy(w, from); err != nil {
		cancel() // a writer that is closed after its context ended writes nothing
		return translate("put", errors.Join(err, ignoreCanceled(w.Close())))
	}
	return translate("put", w.Close())
}

func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) || gcerrors.Code(err) == gcerrors.Canceled {
		return nil
	}
	return err
}

func translate(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case gcerrors.Code(err) == gcerrors.NotFound:
		return fmt.Errorf("%s: %w", op, ErrNotFound)
	}
	return fmt.Errorf("%s: %w", op, err)
}
