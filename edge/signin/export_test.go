package signin

import "time"

// SetCompleteWithin shortens how long storing a verdict is retried; it is called before the handler is used.
func (h *Handler) SetCompleteWithin(d time.Duration) { h.completeWithin = d }
