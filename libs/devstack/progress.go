package devstack

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// quietFor is how long a step may take without a word to whoever waits.
const quietFor = 2 * time.Second

// step tells w that what is going on once it has taken longer than quietFor; the function returned ends it, and tells
// that too when the beginning was told.
func step(w io.Writer, what string) (end func()) {
	start := time.Now()
	var mu sync.Mutex
	told := false
	timer := time.AfterFunc(quietFor, func() {
		mu.Lock()
		defer mu.Unlock()
		told = true
		_, _ = fmt.Fprintf(w, "devstack: %s ...\n", what) // nobody to tell that telling failed
	})
	return func() {
		timer.Stop()
		mu.Lock()
		defer mu.Unlock()
		if told {
			_, _ = fmt.Fprintf(w, "devstack: %s: done after %s\n", what, time.Since(start).Round(100*time.Millisecond))
		}
	}
}
