package sessions

import "context"

// FlushOnce stores what was counted until now, as a meter does every few seconds.
func (m *Meter) FlushOnce(ctx context.Context) { m.flush(ctx, m.Now()) }
