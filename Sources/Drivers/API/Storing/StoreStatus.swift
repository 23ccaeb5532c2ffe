import ByteStreams
import Host
import Journal
import JSONCodec

/// The state of the store in responses. `state` is nil if there is no store, that is, if sessions are kept in memory
/// only.
struct StoreStatus {
  private let state: StoreState?

  init(_ state: StoreState?) { self.state = state }

  var hasFailed: Bool { state?.failure != nil }

  /// Why a store in Redis does not work, in words that may be shown to clients without credentials; nil if it works.
  var redisProblem: StaticString? {
    guard let state, state.failure != nil else { return nil }
    return switch state.cause {
    case .notTried, .unreachable: "no connection to Redis"
    case .credentials: "Redis does not accept the user or password of this gateway"
    case .refused: "Redis refuses writes"
    case .tooFewReplicas: "too few replicas of Redis confirm writes"
    }
  }

  /// Why the other gateways cannot reach this gateway; nil if they can, or if there are no other gateways.
  var peerProblem: StaticString? {
    state?.isUnreachable == true ? "other gateways cannot reach this one (listeners.peer_address)" : nil
  }

  /// Writes a line for an operator if another installation seems to use the same `store.prefix`.
  func writeOtherUpstream(showingHosts showsHosts: Bool, into output: inout ByteQueue) {
    guard let other = state?.otherUpstream else { return }
    let hosts = showsHosts ? ": \(other.own) here, \(other.other) there" : ", which the log names"
    output.append(
      "another gateway with the same store.prefix connects session \(other.session) to another host\(hosts)\n")
  }

  /// The response to a request for a session whose holder is unknown because the store does not work. nil if the store
  /// works, or if it has not been used yet.
  func problem(showingReason showsReason: Bool) -> Problem? {
    guard let redisProblem, let state, let failure = state.failure, state.cause != .notTried else { return nil }
    return Problem(
      .storeFailed,
      "this gateway does not know the holder of the session: \(redisProblem)\(showsReason ? " (\(failure))" : ""). Nothing was done: repeat the request after the time in Retry-After"
    )
  }

  /// - Parameter showsReason: false if this path needs no credentials although other paths do.
  func write(showingReason showsReason: Bool, into output: inout ByteQueue) {
    guard let state else {
      output.append("null" as StaticString)
      return
    }
    output.append("{\"state\":" as StaticString)
    output.append(hasFailed ? "\"failed\"" : "\"working\"" as StaticString)
    output.append(",\"seconds_in_state\":" as StaticString)
    output.append(seconds: Self.age(of: state))
    if showsReason {
      output.append(",\"failure\":" as StaticString)
      if let failure = state.failure {
        output.append(jsonString: failure)
      } else {
        output.append("null" as StaticString)
      }
      if let damage = state.damage {
        output.append(",\"damage\":" as StaticString)
        output.append(jsonString: damage)
      }
    }
    output.append("}" as StaticString)
  }

  /// Writes a line for people, unless there is no store.
  func writeLine(showingReason showsReason: Bool, into output: inout ByteQueue) {
    guard let state else { return }
    let damage = showsReason ? state.damage.map { ", but \($0)" } ?? "" : ""
    guard let failure = state.failure else { return output.append("store        working\(damage)\n") }
    let reason = showsReason ? ": \(failure)" : ""
    output.append("store        failed for \(max(0, Int(Self.age(of: state).seconds))) s\(reason)\n")
  }

  private static func age(of state: StoreState) -> TimeSpan {
    .milliseconds(max(0, ProcessInformation.wallClockMilliseconds() - state.since))
  }
}
