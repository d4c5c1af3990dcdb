package signin

import "time"

// SetCompleteWithin shortens how long a verdict is offered to JetStream, before the handler is used.
func (h *Handler) SetCompleteWithin(d time.Duration) { h.completeWithin = d }
