package natsconf

import "time"

// SeenUntil returns until when everything has been seen; each complete poll advances it.
func (f *Freshness) SeenUntil() time.Time { return time.Unix(0, f.until.Load()) }
