import Replication

/// The role of this gateway for one session. A session that does not concern the gateway has no entry. Lives on the
/// loop of the store.
final class SessionEntry {
  enum Tenure {
    case none
    /// This gateway acquires the session when it can.
    case candidate(Candidate)
    /// This gateway has acquired the session, and reads it.
    case loading(Candidate, SessionLoading)
    case held(LocalSession)
    /// The data in Redis cannot be used.
    case damaged
  }

  var tenure = Tenure.none
  /// An acquisition that is not used. It is released before anything else.
  var unwanted: Acquisition?
  /// The copy of a followed session. A session can be held and followed at once, while the loss of its last holder is
  /// not reported yet.
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

  /// nil unless this gateway should become the holder. An assignment keeps a loading in progress.
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

  var held: LocalSession? { if case .held(let session) = tenure { session } else { nil } }

  var isDamaged: Bool { if case .damaged = tenure { true } else { false } }

  /// Ends the loading of an acquired session and returns it; nil if there is none. The session is a candidate again.
  func endLoading() -> SessionLoading? {
    guard case .loading(let candidate, let loading) = tenure else { return nil }
    tenure = .candidate(candidate)
    return loading
  }
}
