import Replication

/// The role of this gateway for one session. A session that does not concern the gateway has no entry. Used only on the
/// loop of the store.
final class SessionRole {
  enum Phase {
    case none
    /// This gateway acquires the session when it can.
    case candidate(Candidate)
    /// This gateway has acquired the session, and reads it.
    case loading(Candidate, SessionLoading)
    case local(LocalSession)
    /// The data in Redis cannot be used.
    case damaged
  }

  var phase = Phase.none
  /// An acquisition that is not used. It is released before this gateway acts as a candidate again.
  var unwanted: Acquisition?
  /// The copy of a followed session. A local session is still followed until this gateway is reported as its holder.
  var followed: FollowedSession?

  /// Whether notifications about the session concern this gateway.
  var isSubscribed: Bool {
    if unwanted != nil || followed != nil { return true }
    return switch phase {
    case .candidate, .loading, .local: true
    case .none, .damaged: false
    }
  }

  var isEmpty: Bool {
    if case .none = phase { unwanted == nil && followed == nil } else { false }
  }

  /// nil unless this gateway is to become the holder. Setting a candidate does not end a loading in progress, but
  /// setting nil does.
  var candidate: Candidate? {
    get {
      switch phase {
      case .candidate(let candidate), .loading(let candidate, _): candidate
      case .none, .local, .damaged: nil
      }
    }
    set {
      switch (phase, newValue) {
      case (.loading(_, let loading), let candidate?): phase = .loading(candidate, loading)
      case (_, let candidate?): phase = .candidate(candidate)
      case (.candidate, nil), (.loading, nil): phase = .none
      case (.none, nil), (.local, nil), (.damaged, nil): break
      }
    }
  }

  var loading: SessionLoading? { if case .loading(_, let loading) = phase { loading } else { nil } }

  var local: LocalSession? { if case .local(let session) = phase { session } else { nil } }

  var isDamaged: Bool { if case .damaged = phase { true } else { false } }

  /// Ends the loading of an acquired session and returns it; nil if there is none. This gateway is a candidate again.
  func endLoading() -> SessionLoading? {
    guard case .loading(let candidate, let loading) = phase else { return nil }
    phase = .candidate(candidate)
    return loading
  }
}
