package devstack

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
)

// pgProtocol is version 3.0 of PostgreSQL's protocol; pgMessageLimit bounds what we read of one message.
const (
	pgProtocol     = 3 << 16
	pgMessageLimit = 1 << 20
)

// pgExec runs one statement on a connection of its own and throws its rows away. It is the little of the protocol that
// the stack needs: no password, no TLS, the simple query. The real client has its home elsewhere.
func pgExec(ctx context.Context, addr, user, database, sql string) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("devstack: dial postgres: %w", err)
	}
	defer func() { _ = conn.Close() }() // the answer was read or the error is told
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()

	startup := binary.BigEndian.AppendUint32(nil, pgProtocol)
	startup = append(startup, "user\x00"+user+"\x00database\x00"+database+"\x00\x00"...)
	r := bufio.NewReader(conn)
	if err := pgCall(conn, r, nil, startup); err != nil {
		return fmt.Errorf("devstack: connect to database %s: %w", database, err)
	}
	if err := pgCall(conn, r, []byte{'Q'}, append([]byte(sql), 0)); err != nil {
		return fmt.Errorf("devstack: %s: %w", sql, err)
	}
	return nil
}

// pgCall writes one message and reads until the server is ready for the next; the server's error is returned.
func pgCall(w io.Writer, r *bufio.Reader, kind, body []byte) error {
	message := binary.BigEndian.AppendUint32(kind, uint32(len(body)+4))
	if _, err := w.Write(append(message, body...)); err != nil {
		return err
	}
	var failure error
	for {
		var header [5]byte
		if _, err := io.ReadFull(r, header[:]); err != nil {
			return errors.Join(failure, err)
		}
		size := binary.BigEndian.Uint32(header[1:])
		if size < 4 || size > pgMessageLimit {
			return fmt.Errorf("message %q of %d bytes", header[0], size)
		}
		content := make([]byte, size-4)
		if _, err := io.ReadFull(r, content); err != nil {
			return errors.Join(failure, err)
		}
		switch header[0] {
		case 'E':
			failure = errors.New(pgMessage(content))
		case 'R':
			if binary.BigEndian.Uint32(content) != 0 {
				return errors.New("the server asks for a password")
			}
		case 'Z':
			return failure
		}
	}
}

// pgMessage picks the human part out of an ErrorResponse: fields of one letter and a string ended by zero.
func pgMessage(content []byte) string {
	for field := range strings.SplitSeq(string(content), "\x00") {
		if strings.HasPrefix(field, "M") {
			return field[1:]
		}
	}
	return "error without a message"
}
