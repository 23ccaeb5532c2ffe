import ByteStreams
import Configuration
import UpstreamSession

/// The session's rules, from what the operator wrote. The loader has checked every word.
extension SessionSettings {
  init(_ configured: GatewaySettings.Upstream, urls: Int) {
    self.init()
    endpoints.count = urls
    endpoints.order = configured.urlOrder == "round-robin" ? .roundRobin : .priority
    endpoints.failBackAfter = configured.failBackAfter
    onDemand = configured.onDemand
    idleAfter = configured.idleAfter
    maximumAge = configured.maximumAge > .zero ? configured.maximumAge : nil
    overlap = configured.overlap
    closing.ranges = configured.closeCodes.map { ($0.codes, CloseReaction($0.reaction)) }
    backoff = BackoffSettings(configured.reconnect)
    liveness.isEnabled = configured.heartbeat.ping
    liveness.interval = configured.heartbeat.interval
    liveness.timeout = configured.heartbeat.timeout
    limits.resolving = configured.timeouts.resolve
    limits.connecting = configured.timeouts.connect
    limits.proxying = configured.timeouts.proxy
    limits.securing = configured.timeouts.tls
    limits.upgrading = configured.timeouts.upgrade
    limits.wholeOpening = configured.timeouts.opening
    limits.opening = configured.timeouts.onOpen
    limits.closing = configured.timeouts.closing
  }
}

extension BackoffSettings {
  init(_ configured: GatewaySettings.Reconnect) {
    self.init()
    strategy = BackoffStrategy(configured)
    maximumAttempts = configured.maximumAttempts > 0 ? configured.maximumAttempts : nil
    stableAfter = configured.resetAfter
    quickRedial = configured.quickRedial
  }
}

extension BackoffStrategy {
  init(_ configured: GatewaySettings.Reconnect) {
    self =
      switch configured.strategy {
      case "fixed": .fixed(configured.base)
      case "exponential":
        .exponential(first: configured.base, factor: configured.factor, cap: configured.maximum)
      case "random": .random(least: configured.minimum, most: configured.maximum)
      case "decorrelated-jitter": .decorrelatedJitter(base: configured.base, cap: configured.maximum)
      case "doubling":
        .doubling(step: configured.base, cap: configured.maximum, whenExhausted: Exhaustion(configured.whenExhausted))
      default: .fullJitter(least: configured.minimum, base: configured.base, cap: configured.maximum)
      }
  }
}

extension BackoffStrategy.Exhaustion {
  init(_ word: String) {
    self =
      switch word {
      case "stop": .stop
      case "reset": .reset
      default: .hold
      }
  }
}

extension CloseReaction {
  init(_ reaction: CloseCodeRule.Reaction) {
    self =
      switch reaction {
      case .backoff: .backoff
      case .refreshCredential: .refreshCredential
      case .park: .park
      case .stop: .stop
      }
  }
}
