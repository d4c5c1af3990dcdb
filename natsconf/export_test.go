package natsconf

import "time"

// SeenUntil returns until when everything has been seen; each complete poll moves it on.
func (f *Freshness) SeenUntil() time.Time { return time.Unix(0, f.until.Load()) }
