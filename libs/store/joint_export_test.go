package store

// Waiting returns how many batches of the session's source wait for the commit that is under way.
func (b *Inbox) Waiting(s Session) int {
	j := b.joint(s)
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.waiting)
}
