package lists

import "context"

// Hurry makes accounts with at least from sessions large, gives a search no time to read them, and makes the
// lists read only the outcomes, of more than a few facts.
func (st *Lists) Hurry(from int) { st.large, st.patience, st.few = from, 0, 20 }

// Bound sets the memory limit of all spans.
func (st *Lists) Bound(bytes int) { st.held.maxBytes = bytes }

// ReadAll does what an Ahead does with an account that is expected.
func (st *Lists) ReadAll(ctx context.Context, account string) error {
	r := reading{account: account}
	for more := true; more; {
		var err error
		if more, err = st.readOn(ctx, &r); err != nil {
			return err
		}
	}
	return nil
}

// Rows returns how many sessions of an account are in memory.
func (st *Lists) Rows(account string) int {
	rows, _ := st.held.sizeOf(account)
	return rows
}

// Use borrows an account's span until release is called.
func (st *Lists) Use(ctx context.Context, account string) (release func(), err error) {
	_, release, err = st.held.borrow(ctx, account, true)
	return release, err
}
