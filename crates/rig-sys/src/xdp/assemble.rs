//! An assembler for the few eBPF instructions that the programs here are made of (RFC 9669).

/// A register. `R0` holds results, `R1` to `R5` arguments, which calls destroy; `R10` is the frame pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// How much is loaded or stored.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(super) enum Size {
    Word = 0x00,
    Half = 0x08,
    Byte = 0x10,
    Double = 0x18,
}

#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(super) enum Op {
    Add = 0x00,
    Sub = 0x10,
    And = 0x50,
    Mov = 0xb0,
    Mul = 0x20,
}

/// When a jump is taken; numbers are unsigned.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(super) enum JumpCondition {
    Equal = 0x10,
    NotEqual = 0x50,
    Above = 0x20,
    Below = 0xa0,
}

/// Numbers of linux/bpf.h.
#[derive(Debug, Clone, Copy)]
#[repr(i32)]
pub(super) enum Helper {
    MapLookup = 1,
    RedirectMap = 51,
    XdpAdjustTail = 65,
    XdpStoreBytes = 190,
}

const LD: u8 = 0x00;
const LDX: u8 = 0x01;
const STX: u8 = 0x03;
const ALU: u8 = 0x04;
const JMP: u8 = 0x05;
const JMP32: u8 = 0x06;
const ALU64: u8 = 0x07;
const MEM: u8 = 0x60;
const REGISTER: u8 = 0x08;

/// `struct bpf_insn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// A place to jump to, forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Label(usize);

#[derive(Debug, Default)]
pub(super) struct Assembler {
    code: Vec<Instruction>,
    /// Where each label is.
    places: Vec<Option<usize>>,
    /// Jumps, and where to.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    fn push(&mut self, code: u8, to: Register, from: Register, offset: i16, immediate: i32) {
        self.code.push(Instruction { code, registers: (from as u8) << 4 | to as u8, offset, immediate });
    }

    pub fn load(&mut self, size: Size, to: Register, from: Register, offset: i16) {
        self.push(LDX | MEM | size as u8, to, from, offset, 0);
    }

    pub fn store(&mut self, size: Size, to: Register, offset: i16, from: Register) {
        self.push(STX | MEM | size as u8, to, from, offset, 0);
    }

    /// On 64 bits, the number extended with its sign.
    pub fn immediate(&mut self, op: Op, to: Register, number: i32) {
        self.push(ALU64 | op as u8, to, Register::R0, 0, number);
    }

    /// On 64 bits.
    pub fn register(&mut self, op: Op, to: Register, from: Register) {
        self.push(ALU64 | REGISTER | op as u8, to, from, 0, 0);
    }

    /// On the lower 32 bits, which the upper ones are then empty of.
    pub fn immediate32(&mut self, op: Op, to: Register, number: u32) {
        self.push(ALU | op as u8, to, Register::R0, 0, number as i32);
    }

    /// 32 bits from the network's byte order.
    pub fn network32(&mut self, register: Register) {
        self.push(ALU | REGISTER | 0xd0, register, Register::R0, 0, 32);
    }

    pub fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// The next instruction is what the label stands for.
    pub fn place(&mut self, label: Label) {
        self.places[label.0] = Some(self.code.len());
    }

    pub fn jump(&mut self, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(JMP, Register::R0, Register::R0, 0, 0);
    }

    /// Compares the lower 32 bits with a number.
    pub fn jump_if32(&mut self, cond: JumpCondition, register: Register, number: u32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(JMP32 | cond as u8, register, Register::R0, 0, number as i32);
    }

    /// Compares 64 bits with a number that has a positive sign.
    pub fn jump_if(&mut self, cond: JumpCondition, register: Register, number: i32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(JMP | cond as u8, register, Register::R0, 0, number);
    }

    /// Compares 64 bits of two registers.
    pub fn jump_if_register(&mut self, cond: JumpCondition, left: Register, right: Register, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(JMP | REGISTER | cond as u8, left, right, 0, 0);
    }

    /// A map, by its descriptor.
    pub fn map(&mut self, to: Register, fd: i32) {
        // BPF_LD_IMM64 of two slots, with BPF_PSEUDO_MAP_FD in the place of the source register.
        self.push(LD | Size::Double as u8, to, Register::R1, 0, fd);
        self.push(0, Register::R0, Register::R0, 0, 0);
    }

    pub fn call(&mut self, helper: Helper) {
        self.push(JMP | 0x80, Register::R0, Register::R0, 0, helper as i32);
    }

    /// Ends the program with a number.
    pub fn end(&mut self, result: i32) {
        self.immediate(Op::Mov, Register::R0, result);
        self.exit();
    }

    /// Ends the program with what is in `R0`.
    pub fn exit(&mut self) {
        self.push(JMP | 0x90, Register::R0, Register::R0, 0, 0);
    }

    /// # Panics
    /// When a label has no place, or one that is further away than a jump reaches (32,767 instructions).
    pub fn finish(mut self) -> Vec<Instruction> {
        for (from, label) in self.jumps {
            let to = self.places[label.0].expect("every label is placed");
            let distance = to as isize - from as isize - 1;
            self.code[from].offset = i16::try_from(distance).expect("programs are short");
        }
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(instructions: &[Instruction]) -> Vec<[u8; 8]> {
        let one = |i: &Instruction| {
            let ([a, b], [c, d, e, f]) = (i.offset.to_le_bytes(), i.immediate.to_le_bytes());
            [i.code, i.registers, a, b, c, d, e, f]
        };
        instructions.iter().map(one).collect()
    }

    /// Against the encodings of RFC 9669, 3 to 5.
    #[test]
    fn instructions_are_encoded_as_the_standard_says() {
        let mut a = Assembler::default();
        let end = a.label();
        a.load(Size::Half, Register::R3, Register::R7, 12);
        a.jump_if32(JumpCondition::NotEqual, Register::R3, 8, end);
        a.immediate32(Op::Sub, Register::R1, 0xc000_0201);
        a.network32(Register::R1);
        a.map(Register::R1, 5);
        a.call(Helper::RedirectMap);
        a.place(end);
        a.exit();
        let expected = [
            [0x69, 0x73, 12, 0, 0, 0, 0, 0],
            [0x56, 0x03, 5, 0, 8, 0, 0, 0],
            [0x14, 0x01, 0, 0, 0x01, 0x02, 0x00, 0xc0],
            [0xdc, 0x01, 0, 0, 32, 0, 0, 0],
            [0x18, 0x11, 0, 0, 5, 0, 0, 0],
            [0; 8],
            [0x85, 0, 0, 0, 51, 0, 0, 0],
            [0x95, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(bytes(&a.finish()), expected);
    }

    #[test]
    #[should_panic(expected = "every label is placed")]
    fn a_jump_to_nowhere_is_refused() {
        let mut a = Assembler::default();
        let nowhere = a.label();
        a.jump(nowhere);
        a.finish();
    }
}
