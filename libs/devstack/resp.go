package devstack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// respLimit bounds a bulk string or an array of an answer.
const respLimit = 64 << 20

// redisError is an answer of Redis that begins with "-".
type redisError string

func (e redisError) Error() string { return "redis: " + string(e) }

// respDo sends one command on a connection of its own and reads the answer: string, int64, nil, or []any of these.
func respDo(ctx context.Context, addr, password string, args ...string) (any, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("devstack: dial redis: %w", err)
	}
	defer func() { _ = conn.Close() }() // the answer was read or the error is told
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()

	reader := bufio.NewReader(conn)
	if password != "" {
		if _, err := respCall(conn, reader, "AUTH", password); err != nil {
			return nil, err
		}
	}
	return respCall(conn, reader, args...)
}

func respCall(conn io.Writer, reader *bufio.Reader, args ...string) (any, error) {
	var request strings.Builder
	fmt.Fprintf(&request, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(conn, request.String()); err != nil {
		return nil, fmt.Errorf("devstack: write to redis: %w", err)
	}
	answer, err := respRead(reader)
	if err != nil {
		return nil, fmt.Errorf("devstack: redis %s: %w", args[0], err)
	}
	return answer, nil
}

func respRead(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return nil, errors.New("empty line in answer")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return nil, redisError(rest)
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("answer %q: %w", line, err)
	}
	switch {
	case kind == ':':
		return n, nil
	case n < 0:
		return nil, nil
	case n > respLimit:
		return nil, fmt.Errorf("answer of %d bytes or items is over the limit of %d", n, respLimit)
	case kind == '$':
		text := make([]byte, n+2)
		if _, err := io.ReadFull(r, text); err != nil {
			return nil, err
		}
		return string(text[:n]), nil
	case kind == '*':
		var items []any
		for range n {
			item, err := respRead(r)
			if err != nil {
				return nil, err
			}
			items = append(items, item)
		}
		return items, nil
	}
	return nil, fmt.Errorf("answer of unknown kind %q", kind)
}
