package integrator

import "verifyd/edge/dashboard/site"

// The messages of this package's pages.
const (
	flashKeyRevoked      site.FlashCode = "key-revoked"
	flashOnce            site.FlashCode = "once"
	flashRotated         site.FlashCode = "rotated"
	flashRotationEnded   site.FlashCode = "rotation-ended"
	flashRotating        site.FlashCode = "rotating"
	flashNotRotating     site.FlashCode = "not-rotating"
	flashRoleChanged     site.FlashCode = "role-changed"
	flashMemberRemoved   site.FlashCode = "member-removed"
	flashInviteWithdrawn site.FlashCode = "invite-withdrawn"
	flashLastOwner       site.FlashCode = "last-owner"
	flashRenamed         site.FlashCode = "renamed"
	flashDeletionAsked   site.FlashCode = "deletion-asked"
	flashRestored        site.FlashCode = "restored"
)

var flashes = map[site.FlashCode]site.Flash{
	flashKeyRevoked: {Tone: "good", Text: "The key is revoked. Calls with it are refused from now on."},
	flashOnce:       {Tone: "caution", Text: "That was shown once and cannot be shown again."},
	flashRotated: {
		Tone: "good", Text: "The signing secret is replaced. Give the new one to your receiver before " +
			"the overlap ends.",
	},
	flashRotationEnded: {
		Tone: "good", Text: "The old secret no longer signs. Callbacks carry only the new signature.",
	},
	flashRotating: {
		Tone: "caution",
		Text: "A rotation is already in progress. End it first, or wait until its overlap is over.",
	},
	flashNotRotating:     {Tone: "caution", Text: "No rotation is in progress."},
	flashRoleChanged:     {Tone: "good", Text: "The role is changed. It takes effect with the next click."},
	flashMemberRemoved:   {Tone: "good", Text: "The member is removed and no longer has access."},
	flashInviteWithdrawn: {Tone: "good", Text: "The invite is withdrawn. Its link no longer works."},
	flashLastOwner: {
		Tone: "bad", Text: "An account needs an owner. Make somebody else an owner first.",
	},
	flashRenamed: {
		Tone: "good", Text: "The account has its new name. Your users see it within a second, also on " +
			"pages of open sessions.",
	},
	flashDeletionAsked: {Tone: "caution", Text: "The account is out of service and will be deleted."},
	flashRestored:      {Tone: "good", Text: "The deletion was canceled; the account is in service again."},
}
