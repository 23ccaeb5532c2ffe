import Replication

/// What one session is to this gateway: candidate, held, followed. A session that does not concern the gateway has no entry. Belongs to the loop of the store.
final class SessionEntry {
  enum Tenure {
    case none
    /// This gateway takes the session when it can.
    case candidate(Candidate)
    /// It has acquired the session, and reads it.
    case loading(Candidate, SessionLoading)
    case held(HeldSession)
    /// What Redis has of it cannot be used.
    case damaged
  }

  var tenure = Tenure.none
  /// It was acquired and is not to be used: it is released first.
  var unwanted: Acquisition?
  /// A session can be held and followed, while the loss of its last holder is not reported yet.
  var followed: FollowedSession?

  /// Whether notifications about the session concern this gateway.
  var isSubscribed: Bool {
    if unwanted != nil || followed != nil { return true }
    return switch tenure {
    case .candidate, .loading, .held: true
    case .none, .damaged: false
    }
  }

  var isEmpty: Bool {
    if case .none = tenure { unwanted == nil && followed == nil } else { false }
  }

  /// nil unless the session is to be taken. Assigning it ends no loading.
  var candidate: Candidate? {
    get {
      switch tenure {
      case .candidate(let candidate), .loading(let candidate, _): candidate
      case .none, .held, .damaged: nil
      }
    }
    set {
      switch (tenure, newValue) {
      case (.loading(_, let loading), let candidate?): tenure = .loading(candidate, loading)
      case (_, let candidate?): tenure = .candidate(candidate)
      case (.candidate, nil), (.loading, nil): tenure = .none
      case (.none, nil), (.held, nil), (.damaged, nil): break
      }
    }
  }

  var loading: SessionLoading? { if case .loading(_, let loading) = tenure { loading } else { nil } }

  var held: HeldSession? { if case .held(let session) = tenure { session } else { nil } }

  var isDamaged: Bool { if case .damaged = tenure { true } else { false } }

  /// Ends reading what was acquired; returns it. The session is a candidate again.
  func endLoading() -> SessionLoading? {
    guard case .loading(let candidate, let loading) = tenure else { return nil }
    tenure = .candidate(candidate)
    return loading
  }
}
