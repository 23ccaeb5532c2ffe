import ByteStreams
import TestSupport
import Testing

@testable import UpstreamSession

/// A session with a transport that carries out its actions, rejects illegal actions, and fails at random.
@Suite struct SessionSimulation {
  /// The transport's state for one attempt.
  enum Socket {
    case dialling(AttemptPhase)
    case open
    case closing
  }

  struct World: ~Copyable {
    var machine: SessionStateMachine
    var random: SeededGenerator
    var now = MonotonicTime(nanoseconds: 1)
    var sockets: [Generation: Socket] = [:]
    var sending: Generation?
    var newest = Generation.none
    var dials = 0
    var lastSequence: UInt64 = 0
    var lastState = SessionState.stopped
    /// The most recent pings.
    var pings: [(counter: UInt64, generation: Generation)] = []

    mutating func perform(_ actions: [SessionAction]) {
      for action in actions {
        switch action {
        case .dial(let dial):
          #expect(machine.desired == .up, "an attempt began although the session must stay closed")
          #expect(dial.generation > newest, "each attempt has a new generation")
          newest = dial.generation
          sockets[dial.generation] = .dialling(.resolving)
          dials += 1
        case .startSending(let generation):
          #expect(sending == nil, "two connections send at once")
          #expect(isOpen(generation))
          sending = generation
        case .stopSending(let generation, closedAsTooBig: _):
          #expect(sending == generation, "a connection that did not send stopped sending")
          sending = nil
        case .pauseSending(let generation, let successor):
          #expect(sending == generation && isOpen(successor))
        case .resumeSending(let generation):
          #expect(sending == generation)
        case .beginOverlap(let older, let newer):
          #expect(sending == older && sockets[newer] != nil)
        case .endOverlap:
          break
        case .ping(let counter, let generation):
          pings.append((counter, generation))
          if pings.count > 8 { pings.removeFirst() }
          #expect(isOpen(generation), "a ping on a socket that is not open")
        case .sendSetup(step: _, let generation), .skipSetup(step: _, let generation):
          #expect(isOpen(generation))
        case .sendHeartbeat(_, let generation):
          #expect(isOpen(generation), "a heartbeat that outlives its socket")
        case .close(let generation, code: _):
          #expect(isOpen(generation))
          #expect(sending != generation, "the connection sends after its close frame")
          sockets[generation] = .closing
        case .discard(let generation):
          #expect(sending != generation, "a discarded socket still takes messages from the queue")
          sockets[generation] = nil
        case .pauseHost:
          break
        case .report(let transition):
          #expect(transition.sequence == lastSequence + 1)
          #expect(transition.from == lastState)
          #expect(transition.from != transition.to)
          lastSequence = transition.sequence
          lastState = transition.to
        }
      }
      #expect(machine.sending == sending, "the machine names the sending connection")
      #expect(lastState == machine.observed, "every change of state is reported")
      #expect(sockets.count <= 3)
      #expect((sending != nil) == machine.observed.isSending)
    }

    func isOpen(_ generation: Generation) -> Bool {
      if case .open = sockets[generation] { return true }
      return false
    }

    mutating func chance(_ percent: Int) -> Bool { Int.random(in: 0..<100, using: &random) < percent }

    /// Reports a random event of one of the sockets.
    mutating func disturb() {
      guard let (generation, socket) = sockets.randomElement(using: &random) else { return }
      switch socket {
      case .dialling(let phase):
        if chance(60) {
          guard phase < .upgrading, let next = AttemptPhase(rawValue: phase.rawValue + 1) else {
            sockets[generation] = .open
            perform(machine.upgraded(generation, now: now, using: &random))
            return
          }
          sockets[generation] = .dialling(next)
          perform(machine.advanced(to: next, generation, now: now))
        } else if phase == .upgrading, chance(20) {
          sockets[generation] = nil
          perform(machine.redirected(generation, now: now, using: &random))
        } else {
          sockets[generation] = nil
          let reasons: [AttemptFailure.Reason] = [
            .network, .tls, .noRoute, .timedOut, .handshake, .status(401, retryAfter: nil),
            .status(403, retryAfter: nil), .status(503, retryAfter: .seconds(7)), .status(500, retryAfter: nil),
          ]
          let failure = AttemptFailure(phase: phase, reason: reasons.randomElement(using: &random) ?? .network)
          perform(machine.attemptFailed(failure, generation, now: now, using: &random))
        }
      case .open:
        switch Int.random(in: 0..<8, using: &random) {
        case 0..<2:
          guard let ping = pings.last(where: { $0.generation == generation }) else { return }
          _ = machine.pongReceived(ping.counter, generation, now: now)
          perform(machine.handOverPongReceived(ping.counter, generation, now: now, using: &random))
        case 2..<5:
          perform(machine.bytesReceived(generation, now: now))
        case 5:
          perform(machine.setupResponseReceived(generation, now: now, using: &random))
        case 6:
          let codes: [UInt16] = [1000, 1001, 1002, 1005, 1008, 1009, 1011, 1012, 1013, 4001]
          let code = codes.randomElement(using: &random) ?? 1000
          perform(machine.closeReceived(code: code, generation, now: now, using: &random))
        default:
          let losses: [ConnectionLoss] = [.ended, .reset, .noRoute, .addressGone, .violation(code: 1002)]
          let loss = losses.randomElement(using: &random) ?? .ended
          perform(machine.connectionLost(loss, generation, now: now, using: &random))
        }
      case .closing:
        sockets[generation] = nil
        perform(machine.connectionLost(.ended, generation, now: now, using: &random))
      }
    }

    /// Reports late events of an old socket, which must change nothing.
    mutating func speakFromTheGrave() {
      guard newest.number > 0 else { return }
      let old = Generation(UInt64.random(in: 1...newest.number, using: &random))
      guard sockets[old] == nil else { return }
      let before = machine.observed
      perform(machine.advancedIfStale(old, now: now))
      perform(machine.bytesReceived(old, now: now))
      perform(machine.closeReceived(code: 1000, old, now: now, using: &random))
      perform(machine.connectionLost(.reset, old, now: now, using: &random))
      #expect(machine.observed == before, "a report of an old socket changed the state")
    }
  }

  @Test(arguments: [UInt64](1...24))
  func neverBreaksItsRules(seed: UInt64) {
    var settings = SessionSettings()
    settings.endpoints.count = Int(seed % 3) + 1
    if seed % 4 == 0 { settings.setup = [SetupStep(expectsResponse: false), SetupStep(expectsResponse: true)] }
    if seed % 5 == 0 { settings.maximumAge = .minutes(5) }
    if seed % 6 == 0 { settings.onDemand = true }
    var world = World(machine: SessionStateMachine(settings), random: SeededGenerator(seed: seed))

    world.perform(world.machine.start(now: world.now, using: &world.random))
    for _ in 0..<10_000 {
      switch Int.random(in: 0..<100, using: &world.random) {
      case 0: world.perform(world.machine.open(now: world.now, using: &world.random))
      case 1:
        if world.chance(20) { world.perform(world.machine.close(now: world.now)) }
      case 2:
        let hasGained = world.chance(50)
        world.perform(world.machine.networkChanged(hasGained: hasGained, now: world.now, using: &world.random))
      case 3: world.perform(world.machine.replace(because: .reload, now: world.now))
      case 4..<8: world.perform(world.machine.demand(now: world.now))
      case 8..<14: world.speakFromTheGrave()
      case 14..<60: world.disturb()
      default:
        let deadline = world.machine.nextDeadline
        let step = TimeSpan.milliseconds(Int64.random(in: 0...3_000, using: &world.random))
        world.now = deadline < .distantFuture && world.chance(50) ? max(world.now, deadline) : world.now + step
        world.perform(world.machine.deadlineReached(now: world.now, using: &world.random))
      }
    }

    // Whatever state the faults have caused, the session recovers by itself, without a further request.
    world.perform(world.machine.open(now: world.now, using: &world.random))
    for _ in 0..<2_000 where !world.machine.observed.isSending {
      world.perform(world.machine.demand(now: world.now))
      if let (generation, socket) = world.sockets.randomElement(using: &world.random) {
        switch socket {
        case .dialling:
          world.sockets[generation] = .open
          world.perform(world.machine.upgraded(generation, now: world.now, using: &world.random))
        case .open:
          world.perform(world.machine.setupResponseReceived(generation, now: world.now, using: &world.random))
        case .closing:
          world.sockets[generation] = nil
          world.perform(world.machine.connectionLost(.ended, generation, now: world.now, using: &world.random))
        }
      } else if world.machine.nextDeadline < .distantFuture {
        world.now = max(world.now, world.machine.nextDeadline)
        world.perform(world.machine.deadlineReached(now: world.now, using: &world.random))
      }
    }
    #expect(world.machine.observed.isSending, "the session never recovered from \(world.machine.observed)")
    #expect(world.dials > 20)
  }
}

extension SessionStateMachine {
  /// Reports `upgraded` for an attempt that has ended.
  fileprivate mutating func advancedIfStale(_ generation: Generation, now: MonotonicTime) -> [SessionAction] {
    var random = SeededGenerator(seed: 0)
    return upgraded(generation, now: now, using: &random)
  }
}
