package manage

import (
	"errors"

	"verifyd/edge/account/accountstore"
	"verifyd/edge/problem"
	"verifyd/edge/request"
	"verifyd/sessions/proof"
	"verifyd/sessions/urlpolicy"
)

// PATCH /manage/accounts/{account} changes the members in the body, each with a record of its own in the
// audit log. The form of the body is checked before anything is changed. If a later change is refused, the
// earlier ones remain, and repeating the whole request is harmless.
func (h accountCalls) changeAccount(c call) (answer, *problem.Problem) {
	m, p := c.body("name", "grant_name", "verified_name", "quota", "binding", "max_users", "return_url",
		"colour", "notice_url", "disabled", "disabled_reason")
	if p != nil {
		return answer{}, p
	}
	changes := h.changesOf(m)
	if p := m.Problem(); p != nil {
		return answer{}, p
	}
	if len(changes) == 0 {
		return answer{}, request.Invalid(problem.Fault{Code: problem.FaultMissing,
			Detail: "the body changes nothing; give at least one member"})
	}
	for _, change := range changes {
		if err := change(c); err != nil {
			return answer{}, refusal(err)
		}
	}
	return h.changed(h.Accounts.Account(c.ctx(), c.account()))
}

// changesOf reads the changes in a body, in the order in which they are made: the verified mark is for the
// name that the account has by then.
func (h accountCalls) changesOf(m *request.Members) (changes []func(call) error) {
	add := func(given bool, do func(call) error) {
		if given {
			changes = append(changes, do)
		}
	}
	name, renamed := m.Text("name", false)
	granted, asked := m.Flag("grant_name")
	if asked && !renamed {
		m.Faultf("grant_name", problem.FaultValue, "it is only allowed with name")
	}
	add(renamed, func(c call) error {
		_, err := h.Accounts.RenameAccount(c.ctx(), c.by, c.account(), name, granted)
		return err
	})
	verified, marked := textOrNull(m, "verified_name")
	add(marked, func(c call) error {
		_, err := h.Accounts.SetVerified(c.ctx(), c.by, c.account(), verified, verified != "")
		return err
	})
	quota, limited := intOrNull(m, "quota")
	add(limited, func(c call) error { return h.Accounts.SetQuota(c.ctx(), c.by, c.account(), quota) })
	if to := bindingOf(m); to != (accountstore.Binding{}) {
		add(true, func(c call) error { return h.Accounts.SetBinding(c.ctx(), c.by, c.account(), to) })
	}
	url, linked := textOrNull(m, "return_url")
	add(linked, func(c call) error { return h.Accounts.SetReturnURL(c.ctx(), c.by, c.account(), url) })
	colour, coloured := textOrNull(m, "colour")
	add(coloured, func(c call) error { return h.Accounts.SetColour(c.ctx(), c.by, c.account(), colour) })
	notices, posted := noticeURL(m)
	add(posted, func(c call) error { return h.Accounts.SetNoticeURL(c.ctx(), c.by, c.account(), notices) })
	h.addService(m, add)
	return changes
}

// addService adds the change that disables or enables the account.
func (h accountCalls) addService(m *request.Members, add func(bool, func(call) error)) {
	disabled, given := m.Flag("disabled")
	reason, withReason := m.Text("disabled_reason", false)
	if withReason && !disabled {
		m.Faultf("disabled_reason", problem.FaultValue, "it is only allowed with disabled: true")
	}
	add(given && disabled, func(c call) error {
		_, err := h.Accounts.Disable(c.ctx(), c.by, c.account(), reason)
		return err
	})
	add(given && !disabled, func(c call) error {
		_, err := h.Accounts.Enable(c.ctx(), c.by, c.account())
		return err
	})
}

// noticeURL reads where notices are posted. Which addresses may be dialled is checked at the dial.
func noticeURL(m *request.Members) (to urlpolicy.URL, given bool) {
	text, given := textOrNull(m, "notice_url")
	if !given || text == "" {
		return to, given
	}
	to, err := urlpolicy.ParseNamed(text)
	if f, ok := errors.AsType[*urlpolicy.Fault](err); ok {
		m.Faultf("notice_url", problem.FaultValue, "%s", f.Detail)
	}
	return to, err == nil
}

func bindingOf(m *request.Members) (to accountstore.Binding) {
	if text, given := textOrNull(m, "binding"); given {
		to.Level = new(proof.Level(text))
	}
	if users, given := intOrNull(m, "max_users"); given {
		to.MaxUsers = new(int(min(users, accountstore.MaxUsersLimit+1)))
	}
	return to
}

// textOrNull reads a member that is a text, or null to unset it. An empty text is invalid.
func textOrNull(m *request.Members, name string) (text string, given bool) {
	if m.Null(name) {
		return "", true
	}
	text, given = m.Text(name, false)
	if given && text == "" {
		m.Faultf(name, problem.FaultLength, "the field is empty; send null to remove the value")
		return "", false
	}
	return text, given
}

// intOrNull is textOrNull for an integer from 1 on.
func intOrNull(m *request.Members, name string) (n int64, given bool) {
	if m.Null(name) {
		return 0, true
	}
	n, given = m.Int(name)
	if given && n < 1 {
		m.Faultf(name, problem.FaultValue,
			"the field is %d; it must be 1 or more, or null to remove the value", n)
		return 0, false
	}
	return n, given
}
